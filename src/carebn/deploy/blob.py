"""Weights apart from the program: a blob with a checksum, which the C file checks before it acts by it.

    0    8   CAREBNB1
    8    4   bytes of the payload, little-endian
    12   4   CRC-32 of the payload (as in zlib)
    16   16  the policy: the beginning of the SHA-256 of the names, types and shapes of all arrays and of the payload
    32       the payload: the arrays one after the other, little-endian, those of four bytes first

The C file knows the whole header of its own blob, because sums that cannot overflow were worked out for these weights
and no others. So a blob of any other policy is refused, be it of the same shape.
"""

import hashlib
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from carebn.deploy.integer_parts import Whole

MAGIC = b"CAREBNB1"
HEADER = 32


class Blob(NamedTuple):
    header: bytes
    payload: bytes
    places: dict[str, tuple[int, str, tuple[int, ...]]]  # of each array: where in the payload, its type, its shape

    @property
    def data(self) -> bytes:
        return self.header + self.payload


def blob_of(arrays: Mapping[str, Whole]) -> Blob:
    payload, places, names = b"", {}, ""
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize):
        places[name] = (len(payload), f"{array.dtype.name}_t", array.shape)
        names += f"{name} {array.dtype.name} {array.shape}\n"
        payload += array.astype(array.dtype.newbyteorder("<")).tobytes()
    identity = hashlib.sha256(names.encode() + payload).digest()[:16]
    numbers = len(payload).to_bytes(4, "little") + zlib.crc32(payload).to_bytes(4, "little")
    return Blob(MAGIC + numbers + identity, payload, places)


def blob_code(blob: Blob, name: str, codes: Mapping[str, int]) -> str:
    """The arrays as places in the blob, and the function that checks it."""
    places = ""
    for array, (start, kind, (*rest,)) in blob.places.items():
        inner = "".join(f"[{n}]" for n in rest[1:])
        places += (
            f"#define {array} ((const {kind} (*){inner})(blob + {HEADER + start}))\n"
            if inner
            else (f"#define {array} ((const {kind} *)(blob + {HEADER + start}))\n")
        )
    return f"""{places}
static const unsigned char *blob;  /* the weights; none, until they have been checked */
static const uint8_t expected[{HEADER}] = {{{", ".join(map(str, blob.header))}}};

static int differs(const unsigned char *seen, int from, int to)
{{
    for (int i = from; i < to; i++) if (seen[i] != expected[i]) return 1;
    return 0;
}}

int {name}_load(const void *weights, uint32_t size);
int {name}_load(const void *weights, uint32_t size)
{{
    const unsigned char *seen = weights;
    const uint32_t one = 1;
    uint32_t crc = 0xffffffffu, stored = 0;
    blob = 0;
    if (!seen || size < {HEADER}) return {codes["WRONG_SIZE"]};
    if ((uintptr_t)seen % 4) return {codes["MISALIGNED"]};
    if (differs(seen, 0, 8) || !*(const unsigned char *)&one) return {codes["NOT_A_BLOB"]};
    if (differs(seen, 16, {HEADER})) return {codes["OTHER_POLICY"]};
    if (size != {len(blob.data)}u) return {codes["WRONG_SIZE"]};
    if (differs(seen, 8, 16)) return {codes["DAMAGED"]};
    for (uint32_t i = {HEADER}; i < size; i++) {{
        crc ^= seen[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }}
    for (int i = 0; i < 4; i++) stored |= (uint32_t)expected[12 + i] << 8 * i;
    if (~crc != stored) return {codes["DAMAGED"]};
    blob = seen;
    return 0;
}}

"""


def blob_program(name: str) -> str:
    """The beginning of a test program, which is told the blob's file."""
    return f"""    static union {{ uint32_t aligned; unsigned char bytes[1 << 24]; }} weights;
    FILE *file = count > 1 ? fopen(words[1], "rb") : 0;
    if (!file) {{
        fprintf(stderr, "give the file with the weights\\n");
        return 1;
    }}
    int refused = {name}_load(weights.bytes, (uint32_t)fread(weights.bytes, 1, sizeof weights.bytes, file));
    fclose(file);
    if (refused) {{
        fprintf(stderr, "the weights are refused: code %d\\n", refused);
        return 1;
    }}
"""

"""Hostile command lines: whatever is typed, and whatever lies where a file is looked for, gets one clear sentence.

options    what each command can be given, read from its own dataclass
cases      a command line and damaged files, drawn at random; a case says everything, and can be repeated
damage     what a file can be instead of itself
world      the directory that a command finds itself in: trained runs, alien files, pipes, devices, full disks
running    the real entry point in a process of its own, with limits of memory and time
judging    whether what came of it is what a user should get
"""

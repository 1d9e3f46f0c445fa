"""Other libraries' own classes with what this package makes; each module needs its library, and nothing needs them."""

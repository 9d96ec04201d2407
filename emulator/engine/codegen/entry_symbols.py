"""The symbols of the host functions between Python and translations, and the sizes that they agree on with Python."""

MAX_MACHINES = 64
ENTER, ON_FAULT, MISS, HOOK = "enter", "on_fault", "miss", "hook"
ACCESS_GATE, FETCH_GATE = "access_gate", "fetch_gate"
SIGSEGV, SIGBUS = 11, 7

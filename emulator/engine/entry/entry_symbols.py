"""What the host functions between Python and translations have in common with Python: their symbols, the size of the
table of machines, and the signals of host faults."""

MAX_MACHINES = 64
ENTER, ON_FAULT, MISS, HOOK = "enter", "on_fault", "miss", "hook"
ACCESS_GATE, FETCH_GATE = "access_gate", "fetch_gate"
SIGSEGV, SIGBUS = 11, 7

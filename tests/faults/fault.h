// What rewritten sources call at each fault: see faults.py.
#pragma once

// Notes that a fault was reached, and whether it made a difference there. True: it is the one that is planted.
_Bool fault(int id, _Bool differs);

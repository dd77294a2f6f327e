// Every way in which tilec's own code asks for memory, each refusable. The linker puts `__wrap_F` in the place of F in
// what is linked statically (`--wrap`, CMakeLists.txt): tilec, not LLVM and not the C library. So what a function of
// the C library allocates for tilec counts as one request, that of the call.
#pragma once

void refuse_from(long first, long last);   // the requests of these numbers, from 1 on; counts anew
void refuse_none(void);
long requests_made(void);   // since then
long blocks_held(void);     // allocated and not freed, by tilec's own code

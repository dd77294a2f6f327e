// A kernel of a source on the emulator, for `tilec serve-compiles`: the arguments are checked as those of a launch.
#pragma once
#include "runtime/compile/compile.h"
#include "runtime/worker/serve.h"

// Runs what the request asks for; the tensors that are written go to the reply.
TilecStatus emulate_source(Answer *answer, Loader *loader, const CompileOptions *options);

// What the runner sees of the registry beyond pass.h.
#pragma once
#include "passes/pass.h"

const Pass *pipeline_step(int index);   // the pass of the pipeline's step; NULL past the end

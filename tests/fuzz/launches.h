// All queries of an artefact, and a launch of each of its kernels with arguments drawn from a number.
#pragma once
#include "tilec/tilec.h"

void query_all(const TilecArtefact *artefact);
void launch_all(const TilecArtefact *artefact, uint64_t seed);

// What the command line tells about this tilec and the machine it runs on.
#pragma once
#include "support/strbuf.h"
#include "target/target.h"

int info_layout(int argc, char **argv);           // the layout calculator; -1: not built in
void info_device(Arena *arena, StrBuf *out);      // driver, devices
const Target *info_device_target(Arena *arena);   // the best target for the device; NULL without a device

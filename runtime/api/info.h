// Facts about the machine, and the layout calculator, for the command line.
#pragma once
#include "ir/document.h"   // its pages
#include "support/strbuf.h"
#include "target/target.h"

int info_layout(int argc, char **argv);           // runs the layout calculator; -1: not built in
void info_device(Arena *arena, StrBuf *out);      // driver, devices
const Target *info_device_target(Arena *arena);   // best target for device 0; NULL: no device

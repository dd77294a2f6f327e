// The layouts that the passes chose, for people: as text, or with pictures.
#pragma once
#include "ir/ir.h"
#include "support/strbuf.h"

typedef enum { LAYOUTS_TEXT, LAYOUTS_SVG, LAYOUTS_HTML } LayoutsForm;

// Every shared buffer and fragment of every kernel of a module after swizzle-allocation: layout, place, for shared
// buffers what each access costs, and (SVG, HTML) the beginning of the tile with its banks or owners. `name` is what was
// compiled. The same module gives the same bytes.
void emit_layouts(Module *module, const Target *target, const char *name, LayoutsForm form, StrBuf *out);

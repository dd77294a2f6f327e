// The report of --emit=layouts: the layouts that the passes chose, as text, SVG or HTML.
#pragma once
#include "passes/analysis/shared_access.h"
#include "support/strbuf.h"

typedef enum { LAYOUTS_TEXT, LAYOUTS_SVG, LAYOUTS_HTML } LayoutsForm;

// `module`: after swizzle-allocation. Lists every shared buffer and fragment of every kernel: layout, offset, bank
// conflicts of each access, and (SVG, HTML) a picture of the first rows with their banks or owning threads. `name`: the
// title of the page. The output is deterministic.
void emit_layouts(Module *module, const Target *target, const char *name, LayoutsForm form, StrBuf *out);

// An access in words: "line 12, copy", "reads 4 bytes a lane", "2 an access".
typedef struct AccessWords {
    const char *who, *what, *conflicts;
    bool conflicting;
} AccessWords;
AccessWords access_words(Arena *arena, const Target *target, const SharedAccess *access);

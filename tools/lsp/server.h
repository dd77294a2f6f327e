// The state of `tilec lsp`, and its answers.
#pragma once
#include "tools/lsp/document.h"
#include "tools/lsp/messages.h"

typedef struct LspServer {
    const Target *target;      // of layouts and decisions
    const char *import_root;   // NULL: none
    Document *documents;
    bool utf8;            // columns count bytes
    bool refreshes;       // the editor takes workspace/inlayHint/refresh
    bool stopped, quit;   // shutdown was asked for; exit
    int64_t asked;        // requests of the server
} LspServer;

// Adds the result of a request as JSON. False: `result` is the text of the error.
typedef bool LspAnswer(LspServer *server, Arena *arena, const Json *params, StrBuf *result);
LspAnswer *lsp_answer(const char *method);   // NULL: unknown

Document *document_of(const LspServer *server, const Json *params);   // by params.textDocument.uri; NULL: not open
// The diagnostics of an analysis of the document's present text, to the editor.
void publish_diagnostics(const LspServer *server, Arena *arena, const Document *document, const Analysis *analysis);

// `tilec explain`: the pages of docs/reference/diagnostics, which cmake/DiagnosticPages.cmake writes as a table.
#pragma once

typedef struct DiagnosticPage {
    const char *code, *text;   // "T0203"; markdown
} DiagnosticPage;

extern const DiagnosticPage DIAGNOSTIC_PAGES[];   // ends with a row of NULL

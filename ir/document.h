// Pages of docs/reference made from the tables of ir/.
#pragma once
#include "support/strbuf.h"

void ir_document_operations(StrBuf *out);   // operations.md, from ops.def
void ir_document_attributes(StrBuf *out);   // attributes.md, from attrs.def

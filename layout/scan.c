#include "layout/scan.h"
#include <string.h>

void scan_space(Scan *scan) {
    while (*scan->at == ' ' || *scan->at == '\t') scan->at++;
}

bool scan_accept(Scan *scan, char c) {
    scan_space(scan);
    if (scan->cx->failed || *scan->at != c) return false;
    scan->at++;
    return true;
}

static bool unexpected(Scan *scan, const char *wanted) {
    int column = (int)(scan->at - scan->start) + 1;
    if (!*scan->at) return layout_refuse(scan->cx, "syntax: expected %s at the end of the text", wanted);
    return layout_refuse(scan->cx, "syntax: expected %s at column %d, found '%.12s'", wanted, column, scan->at);
}

bool scan_expect(Scan *scan, char c) {
    if (scan_accept(scan, c)) return true;
    return unexpected(scan, (char[]){'\'', c, '\'', 0});
}

bool scan_keyword(Scan *scan, const char *word) {
    scan_space(scan);
    size_t length = strlen(word);
    if (scan->cx->failed || strncmp(scan->at, word, length) != 0) return false;
    scan->at += length;
    return true;
}

bool scan_end(Scan *scan) {
    scan_space(scan);
    return !*scan->at || unexpected(scan, "the end");
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

int64_t scan_integer(Scan *scan) {
    scan_space(scan);
    if (*scan->at == '_' && is_digit(scan->at[1])) scan->at++;
    if (!is_digit(*scan->at)) return unexpected(scan, "a number");
    int64_t value = 0;
    for (; is_digit(*scan->at); scan->at++) {
        int digit = *scan->at - '0';
        if (value > (LAYOUT_LIMIT - digit) / 10) return layout_refuse(scan->cx, "overflow: a number exceeds 2^62");
        value = value * 10 + digit;
    }
    return value;
}

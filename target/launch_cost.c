#include "target/launch_cost.h"
#include "target/target.h"
#include <string.h>

static const char *const names[] = {
#define COST_NAME(name, meaning) #name,
    COST_TERMS(COST_NAME)
#undef COST_NAME
};
_Static_assert(sizeof names / sizeof names[0] == COST_TERM_COUNT, "a term without its name");

const char *cost_term_name(int term) {
    return names[term];
}

int cost_term_named(const char *name) {
    int term = 0;
    while (term < COST_TERM_COUNT && strcmp(names[term], name) != 0) term++;
    return term;
}

int64_t *cost_term(LaunchCost *cost, int term) {
    return (int64_t *)((char *)cost + (size_t)term * sizeof(int64_t));
}

// The command that says whether a program still shows the failure, run for many candidates at once.
//
// Each run gets a file of its own in the folder of the result (so that imports are found), a process group of its own,
// an empty standard input and a time limit. Signals that end `tilec reduce` are taken while it waits: it stops the
// runs, removes its files and keeps the best program so far.
#pragma once
#include "support/diag.h"
#include "support/vec.h"
#include <regex.h>
#include <signal.h>
#include <sys/types.h>

enum { MOST_RUNS = 64 };   // at once

typedef struct Candidate {
    const char *text;   // NULL: none, go on with the next index
    size_t length;
    const char *key;   // its identity, for a record of rejected candidates
} Candidate;

typedef struct Run {
    char *path;         // the candidate's file
    char **arguments;   // the command with that name
    pid_t id;           // 0: free
    int said_fd;        // what the command says; -1: closed
    int index;
    Candidate candidate;
    StrBuf said;
    double deadline;
} Run;

typedef struct Oracle {
    Arena *arena;
    DiagSink *sink;
    const char *const *command;   // NULL-terminated
    int jobs;
    double timeout;               // seconds
    int exit_code;                // that shows the failure; -1: any
    bool hang;                    // a run that reaches the time limit shows it, and no other
    VEC(const char *) patterns;   // extended regular expressions, each of which its output has to match
    VEC(regex_t) compiled;        // those
    Run runs[MOST_RUNS];
    int signals;     // descriptor of the signals that are taken
    sigset_t mask;   // as it was before
    int count;       // runs that came to an end
    bool stopped;    // interrupted, or nothing can be run (reported)
    // How the last run ended: not in time, or with a shell's exit code; and what it said.
    bool last_late;
    int last_code;
    const char *last_said;
} Oracle;

typedef struct Candidates {
    int from, to;   // indices
    Candidate (*get)(void *user, int index);
    void (*rejected)(void *user, const Candidate *candidate);
    void *user;
} Candidates;

// Makes the files next to `path`, and takes signals until oracle_close. False: reported.
bool oracle_open(Oracle *oracle, const char *path);
void oracle_close(Oracle *oracle);   // stops what runs; also after oracle_open has failed
// The first candidate that shows the failure, in order, whatever number of them is run at once; -1: none does.
int oracle_first(Oracle *oracle, const Candidates *candidates);

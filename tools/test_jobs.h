// Files tested in processes of their own, and the results of all as JUnit XML.
#pragma once
#include "tools/test_runner.h"
#include "tools/tool.h"

typedef struct TestJobs {
    Tool *tool;
    const FileNames *files;
    int count;   // at most so many at the same time
    // Tests a file in its process: prints, adds to `outcomes`. False: an error other than a failed test, in the tool's sink.
    bool (*test)(void *user, const char *path);
    void *user;
    TestOutcomes *outcomes;   // of all files, in their order
    int status;               // out: the first exit code that is not 0 or that of a failed test; 0: none
} TestJobs;

// What the processes print comes in the order of the files. False: not every file could be tested.
bool test_in_processes(TestJobs *jobs);

// A suite for each file.
void junit_write(const TestOutcomes *outcomes, StrBuf *out);

// The sizes of the structures that client.py declares, as JSON.
#include <stdio.h>
#include <tilec/tilec.h>

int main(void) {
    printf(
        "{\"TilecArg\": %zu, \"TilecDefine\": %zu, \"TilecCompileOptions\": %zu, \"TilecEmulation\": %zu, \"TilecDiagnostic\": %zu}\n",
        sizeof(TilecArg), sizeof(TilecDefine), sizeof(TilecCompileOptions), sizeof(TilecEmulation),
        sizeof(TilecDiagnostic));
    return 0;
}

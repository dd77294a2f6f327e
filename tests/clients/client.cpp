// A client in C++11 and later: objects that own what the library made.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <tilec/tilec.h>
#include <vector>

namespace {

template <class Type, void (*destroy)(Type *)> struct Destroy {
    void operator()(Type *object) const {
        destroy(object);
    }
};
using Context = std::unique_ptr<TilecContext, Destroy<TilecContext, tilec_context_destroy>>;
using Artefact = std::unique_ptr<TilecArtefact, Destroy<TilecArtefact, tilec_artefact_destroy>>;
using Diagnostics = std::unique_ptr<TilecDiagnostics, Destroy<TilecDiagnostics, tilec_diagnostics_destroy>>;

const std::string source = "kernel twice(x: f32[N], z: out f32[N]) {\n"
                           "    grid (b in N) threads 32 { thread (t in 1) { z[b] = x[b] * 2; } }\n"
                           "}\n";

void check(TilecStatus status, TilecDiagnostics *said) {
    Diagnostics diagnostics(said);
    if (status != TILEC_OK) throw std::runtime_error(tilec_diagnostics_text(said));
}

Artefact compile(TilecContext *context) {
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecArtefact *artefact = nullptr;
    TilecDiagnostics *said = nullptr;
    options.target = "sm_80";
    options.no_assemble = true;
    check(tilec_compile(context, "twice.tile", source.data(), source.size(), &options, &artefact, &said), said);
    return Artefact(artefact);
}

std::vector<float> twice(TilecContext *context, std::vector<float> x) {
    std::vector<float> z(x.size());
    const int64_t count = static_cast<int64_t>(x.size());
    const TilecArg args[] = {tilec_tensor(TILEC_F32, x.data(), 1, &count), tilec_tensor(TILEC_F32, z.data(), 1, &count)};
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecEmulation emulation = TILEC_INIT(TilecEmulation);
    TilecDiagnostics *said = nullptr;
    emulation.seed = 7;
    check(tilec_emulate(context, "twice.tile", source.data(), source.size(), &options, "twice", args, 2, &emulation, &said), said);
    return z;
}

}   // namespace

int main() {
    try {
        TilecContext *made = nullptr;
        check(tilec_context_create(nullptr, &made), nullptr);
        const Context context(made);
        const Artefact artefact = compile(context.get());
        const std::string manifest = tilec_artefact_manifest(artefact.get());
        const std::vector<float> z = twice(context.get(), {1, 2, 3});
        return manifest.find("twice") != std::string::npos && z[0] == 2 && z[2] == 6 ? 0 : 1;
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}

// The extension of editors/vscode with a stand-in for the editor's API: node extension_test.js EXTENSION_FOLDER TILEC
"use strict";
const assert = require("assert");
const path = require("path");
const Module = require("module");
const [folder, tilec] = process.argv.slice(2);

const values = (names) => Object.fromEntries(names.map((name) => [name, class { constructor(...args) { this.args = args; } }]));
const providers = {}, listeners = {};
const known = ["Hover", "MarkdownString", "Location", "Diagnostic", "DiagnosticRelatedInformation", "CompletionItem", "CodeAction",
    "DocumentSymbol", "DocumentHighlight", "InlayHint", "TextEdit"];
class Position { constructor(line, character) { Object.assign(this, { line, character }); } }
class Range { constructor(start, end) { Object.assign(this, { start, end }); } }
class WorkspaceEdit { constructor() { this.edits = []; } set(uri, edits) { this.edits.push([uri.toString(), edits]); } }
class EventEmitter { constructor() { this.fired = new Promise((done) => { this.fire = done; }); this.event = () => { }; } }
const uri = (text) => ({ toString: () => text });
const diagnostics = { waiting: [], set(where, list) { (this.take || ((x) => this.waiting.push(x)))(list); } };
const emitters = [];
const register = (name) => (selector, provider) => { providers[name] = provider; return {}; };
const vscode = {
    ...values(known), Position, Range, WorkspaceEdit, CodeActionKind: { QuickFix: "quickfix" },
    EventEmitter: class extends EventEmitter { constructor() { super(); emitters.push(this); } },
    Uri: { parse: uri },
    window: { showErrorMessage: (text) => { throw new Error(text); } },
    languages: {
        createDiagnosticCollection: () => diagnostics,
        ...Object.fromEntries(["Hover", "Definition", "Reference", "DocumentHighlight", "DocumentSymbol", "Rename", "CompletionItem",
            "DocumentFormattingEdit", "CodeActions", "InlayHints"].map((name) => [`register${name}Provider`, register(name)])),
    },
    workspace: {
        getConfiguration: () => ({ get: (name) => ({ path: tilec, target: "sm_80" })[name] }),
        textDocuments: [],
        ...Object.fromEntries(["Open", "Close", "Change"].map((name) => [`onDid${name}TextDocument`, (f) => { listeners[name] = f; }])),
    },
};
vscode.languages.registerCodeActionsProvider = register("CodeActions");
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const extension = require(path.join(folder, "extension.js"));

const TEXT = `kernel twice(x: f32[N], y: out f32[N]) {
    tune BLOCK in {128, 256};
    grid (b in ceildiv(N, BLOCK)) threads 128 {
        shared s: f32[BLOCK];
        copy(x[b * BLOCK +: BLOCK], s);
        copy(s, y[b * BLOK +: BLOCK]);
    }
}
`;

function published() {
    if (diagnostics.waiting.length) return Promise.resolve(diagnostics.waiting.shift());
    return new Promise((done) => { diagnostics.take = (list) => { diagnostics.take = null; done(list); }; });
}

function place(text, word) {
    const offset = text.indexOf(word) + 1, lines = text.slice(0, offset).split("\n");
    return new Position(lines.length - 1, lines[lines.length - 1].length);
}

async function session() {
    let text = TEXT;
    const document = { uri: uri("file:///tmp/twice.tile"), languageId: "tile", version: 1, getText: () => text };
    const context = { subscriptions: [] };
    await extension.activate(context);
    listeners.Open(document);
    const found = await published();
    assert.strictEqual(found.length, 1);
    assert.strictEqual(found[0].code, "T0201");
    assert.strictEqual(found[0].args[2], 0);                                  // an error
    const actions = await providers.CodeActions.provideCodeActions(document, found[0].args[0]);
    assert.strictEqual(actions[0].args[0], "Change to 'BLOCK'");
    const [range, newText] = actions[0].edit.edits[0][1][0].args;
    text = text.replace("BLOK", newText);
    document.version = 2;
    listeners.Change({ document, contentChanges: [{ range, text: newText }] });
    assert.deepStrictEqual(await published(), []);
    await emitters[0].fired;                                                  // the passes have run
    const hover = await providers.Hover.provideHover(document, place(text, "s: f32"));
    assert.match(hover.args[0].args[0], /shared s: f32\[128\]/);
    assert.match(hover.args[0].args[0], /@offset/);
    const hints = await providers.InlayHints.provideInlayHints(document, new Range(new Position(0, 0), new Position(9, 0)));
    assert.deepStrictEqual(hints.map((hint) => hint.args[1]), [" = 128"]);
    const target = await providers.Definition.provideDefinition(document, place(text, "BLOCK)"));
    assert.deepStrictEqual({ ...target.args[1].start }, { line: 1, character: 9 });
    const uses = await providers.Reference.provideReferences(document, place(text, "BLOCK)"), { includeDeclaration: true });
    assert.strictEqual(uses.length, 7);
    assert.strictEqual((await providers.DocumentHighlight.provideDocumentHighlights(document, place(text, "BLOCK)"))).length, 7);
    const edit = await providers.Rename.provideRenameEdits(document, place(text, "BLOCK)"), "TILE");
    assert.strictEqual(edit.edits[0][1].length, 7);
    await assert.rejects(providers.Rename.provideRenameEdits(document, place(text, "BLOCK)"), "for"), /word of the language/);
    await assert.rejects(providers.Rename.prepareRename(document, new Position(7, 0)), /no name/);
    const items = await providers.CompletionItem.provideCompletionItems(document, place(text, "BLOCK)"));
    assert.ok(items.some((item) => item.args[0] === "BLOCK" && item.args[1] === 20));   // a constant
    const shown = await providers.DocumentSymbol.provideDocumentSymbols(document);
    assert.deepStrictEqual(shown.map((s) => s.args[0]), ["twice"]);
    const edits = await providers.DocumentFormattingEdit.provideDocumentFormattingEdits(document, {});
    assert.strictEqual(edits[0].args[1], text);
    listeners.Close(document);
    await extension.deactivate();
    console.log("the extension passes");
}

session().catch((error) => {
    console.error(error);
    process.exit(1);
});

/* The grammar. Actions only build nodes (ast.h says what each holds); meaning comes after, in elaborate.c.

   Words such as `out`, `step`, `raster` or `kernel` are keywords only where the grammar expects them: rule `name` lists
   those that may also be names. The others open a statement. `%expect 0` holds: no conflict is hidden. */
%code requires {
#include "frontend/parse.h"
}
%code {
#include "frontend/frontend.h"
#include "lang.tab.h"
#include "support/strbuf.h"
#include <string.h>

int lang_scan(YYSTYPE *value, YYLTYPE *span, void *scanner);
Parse *lang_get_extra(void *scanner);
static int lang_lex(YYSTYPE *value, YYLTYPE *span, void *scanner);
static void lang_error(YYLTYPE *span, Parse *p, void *scanner, const char *text);

// The parser's stacks live in the arena too: leaving through the failure point loses nothing.
#define YYMALLOC(bytes) arena_alloc(p->arena, (bytes))
#define YYFREE(block) ((void)(block))
#define YYMAXDEPTH 20000

#define YYLLOC_DEFAULT(whole, tokens, n)                                                                                \
    do {                                                                                                               \
        if (n) (whole) = parse_join(YYRHSLOC(tokens, 1), YYRHSLOC(tokens, n));                                           \
        else (whole) = (Span){YYRHSLOC(tokens, 0).file, YYRHSLOC(tokens, 0).end_line, YYRHSLOC(tokens, 0).end_column,     \
                              YYRHSLOC(tokens, 0).end_line, YYRHSLOC(tokens, 0).end_column};                             \
    } while (0)

#define NODE(kind, span, ...) parse_node(p, kind, span, __VA_ARGS__)
#define LIST(span) parse_node(p, N_LIST, span, NULL, 0, 0)
#define BINARY(op, span, a, b) parse_node(p, N_BINARY, span, NULL, op, 2, a, b)
}

%define api.pure full
%define api.prefix {lang_}
%define api.location.type {Span}
%define parse.error custom
%define lr.type ielr
%locations
%expect 0
%lex-param {void *scanner}
%parse-param {Parse *p} {void *scanner}

%union {
    Node *node;
    char *text;
    int op;
}
/* Everything lifetimes in the arena of the parse: what error recovery discards needs no freeing. */
%destructor { (void)$$; } <node>

%initial-action { @$ = (Span){.file = p->file, .line = 1, .column = 1, .end_line = 1, .end_column = 1}; }

%token START_FILE START_EXPR
%token BAD "character"
%token <text> KERNEL "'kernel'" PROGRAM "'program'" FN "'fn'" MACRO "'macro'" IMPORT "'import'" CONST "'const'"
%token <text> REFERENCE "'reference'" TEST "'test'" TOLERANCE "'tolerance'" TUNE "'tune'" ASSUME "'assume'"
%token <text> WHEN "'when'" COST "'cost'" SCRATCH "'scratch'" GRID "'grid'" THREADS "'threads'" CLUSTER "'cluster'"
%token <text> PERSISTENT "'persistent'" RASTER "'raster'" REGS "'regs'" ROLE "'role'" ASYNC "'async'"
%token <text> THREAD "'thread'" SHARED "'shared'" FRAGMENT "'fragment'" LOCAL "'local'" VAR "'var'" LET "'let'"
%token <text> LAYOUT "'layout'" STRIDES "'strides'" FOR "'for'" UNROLL "'unroll'" VECTORIZED "'vectorized'"
%token <text> PARALLEL "'parallel'" PIPELINED "'pipelined'" WHILE "'while'" IF "'if'" ELSE "'else'"
%token <text> BREAK "'break'" RETURN "'return'" IN "'in'" OUT "'out'" INOUT "'inout'" STEP "'step'"
%token <text> CHANNEL "'channel'" SLOTS "'slots'" READERS "'readers'" PRODUCE "'produce'" CONSUME "'consume'" ORDERED "'ordered'"
%token <text> ID "a name" INTEGER "a number" FLOATING "a number with a fraction" STRING "a string"
%token OROR "'||'" ANDAND "'&&'" EQ "'=='" NE "'!='" LE "'<='" GE "'>='" SHL "'<<'" SHR "'>>'"
%token DOTDOT "'..'" SPAN "'+:'" ARROW "'->'"
%token <op> OPEQ "an assignment such as '+='"

%precedence THEN
%precedence ELSE
%right '?'
%left OROR
%left ANDAND
%left '|'
%left '^'
%left '&'
%left EQ NE
%left '<' '>' LE GE
%left SHL SHR
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY

%type <text> name
%type <node> items item body_item when cost cparams cnames cname attrs attrs1 attr params params1 param param_dims dims strides index_map exprs
%type <node> coordinates coordinate binds binds1 bind block stmts stmt bare_stmt ropts litems litem tunes tune gopts decls decl lay iters iter
%type <node> place call idxs idx args args1 arg expr type types const body
%type <node> tiles channel_options
%type <op> mode loop scope

%%
start: START_FILE items               { p->result = $2; }
 | START_EXPR expr                    { p->result = $2; }
 ;

/* ---- items ---- */
items: %empty                         { $$ = LIST(@$); }
 | items item                         { $$ = parse_push(p, $1, $2); }
 | items error ';'                    { $$ = $1; yyerrok; }
 | items error '}'                    { $$ = $1; yyerrok; }
 | items error block                  { (void)$3; $$ = $1; yyerrok; }
 | items error block TOLERANCE expr ';'               { (void)$3; (void)$5; $$ = $1; yyerrok; }
 ;
item: attrs body_item                 { $$ = parse_attrs($2, $1); }
 ;
body_item: KERNEL name cparams '(' params ')' when cost block   { $$ = NODE(N_KERNEL, @2, $2, 0, 5, $3, $5, $7, $9, $8); }
 | PROGRAM name cparams '(' params ')' when cost block  { $$ = NODE(N_PROGRAM, @2, $2, 0, 5, $3, $5, $7, $9, $8); }
 | FN name '(' params ')' ARROW type block            { $$ = NODE(N_FN, @2, $2, 0, 3, $4, $7, $8); }
 | MACRO name '(' params ')' block                    { $$ = NODE(N_MACRO, @2, $2, 0, 2, $4, $6); }
 | IMPORT STRING ';'                  { $$ = NODE(N_IMPORT, @2, $2, 0, 0); }
 | const                              { $$ = $1; }
 | REFERENCE name block               { $$ = NODE(N_REFERENCE, @2, $2, 0, 1, $3); }
 | TEST name '(' binds ')' TOLERANCE expr ';'         { $$ = NODE(N_TEST, @2, $2, 0, 3, $4, NULL, $7); }
 | TEST name '(' binds ')' block TOLERANCE expr ';'   { $$ = NODE(N_TEST, @2, $2, 0, 3, $4, $6, $8); }
 ;
const: CONST name '=' expr ';'        { $$ = NODE(N_CONST, @2, $2, 0, 1, $4); }
 ;
when: %empty                          { $$ = NULL; }
 | WHEN '(' expr ')'                  { $$ = $3; }
 ;
cost: %empty                          { $$ = NULL; }
 | COST '(' args1 ')'                 { $$ = $3; }
 ;
cparams: %empty                       { $$ = LIST(@$); }
 | '[' cnames ']'                     { $$ = $2; }
 ;
cnames: cname                         { $$ = parse_push(p, LIST(@$), $1); }
 | cnames ',' cname                   { $$ = parse_push(p, $1, $3); }
 ;
cname: name                           { $$ = NODE(N_CPARAM, @1, $1, 0, 1, NULL); }
 | name ':' type                      { $$ = NODE(N_CPARAM, @1, $1, 0, 1, $3); }
 | name ':' type IN '{' types '}'     { $$ = NODE(N_CPARAM, @1, $1, 0, 2, $3, $6); }
 ;
types: type                           { $$ = parse_push(p, LIST(@$), $1); }
 | types ',' type                     { $$ = parse_push(p, $1, $3); }
 ;
type: ID                              { $$ = NODE(N_NAME, @1, $1, 0, 0); }
 | CHANNEL                            { $$ = NODE(N_NAME, @1, $1, 0, 0); }
 ;
name: ID | OUT | INOUT | STEP | TEST | LAYOUT | REFERENCE | TOLERANCE | RASTER | CLUSTER | PERSISTENT | STRIDES | REGS
 | WHEN | SCRATCH | ROLE | ASYNC | THREADS | KERNEL | PROGRAM | MACRO | TUNE | IMPORT | FN
 | CHANNEL | SLOTS | READERS | PRODUCE | CONSUME | ORDERED | COST
 ;
attrs: %empty                         { $$ = NULL; }
 | attrs1                             { $$ = $1; }
 ;
attrs1: attr                          { $$ = parse_push(p, LIST(@$), $1); }
 | attrs1 attr                        { $$ = parse_push(p, $1, $2); }
 ;
attr: '@' name                        { $$ = NODE(N_ATTR, @$, $2, 0, 0); }
 | '@' name '(' args ')'              { $$ = $4; $$->kind = N_ATTR; $$->text = $2; $$->span = @$; }
 ;
params: %empty                        { $$ = LIST(@$); }
 | params1                            { $$ = $1; }
 ;
params1: param                        { $$ = parse_push(p, LIST(@$), $1); }
 | params1 ',' param                  { $$ = parse_push(p, $1, $3); }
 ;
param: name ':' mode type param_dims strides index_map attrs
                                      { $$ = parse_attrs(parse_param(p, @1, $1, $3, $4, $5, $6, $7), $8); }
 ;
param_dims: dims
 | '[' DOTDOT exprs ']'               { $$ = $3; $$->op = AST_LEADING; }
 | '[' coordinates ']'                { $$ = $2; }
 ;
coordinates: coordinate               { $$ = parse_push(p, LIST(@$), $1); }
 | coordinates ',' coordinate         { $$ = parse_push(p, $1, $3); }
 ;
coordinate: name IN expr              { $$ = NODE(N_ITER, @1, $1, 0, 3, NULL, $3, NULL); }
 ;
index_map: %empty                     { $$ = NULL; }
 | LAYOUT '[' exprs ']'               { $$ = $3; $$->span = @$; }
 ;
mode: %empty                          { $$ = AST_IN; }
 | OUT                                { $$ = AST_OUT; }
 | INOUT                              { $$ = AST_INOUT; }
 | SHARED                             { $$ = AST_SHARED; }
 | FRAGMENT                           { $$ = AST_FRAGMENT; }
 | LOCAL                              { $$ = AST_LOCAL; }
 ;
dims: %empty                          { $$ = NULL; }
 | '[' exprs ']'                      { $$ = $2; }
 ;
strides: %empty                       { $$ = NULL; }
 | STRIDES '[' exprs ']'              { $$ = $3; }
 ;
exprs: expr                           { $$ = parse_push(p, LIST(@$), $1); }
 | exprs ',' expr                     { $$ = parse_push(p, $1, $3); }
 ;
binds: %empty                         { $$ = LIST(@$); }
 | binds1                             { $$ = $1; }
 ;
binds1: bind                          { $$ = parse_push(p, LIST(@$), $1); }
 | binds1 ',' bind                    { $$ = parse_push(p, $1, $3); }
 ;
bind: name '=' expr                   { $$ = NODE(N_NAMED, @1, $1, 0, 1, $3); }
 ;

/* ---- statements ---- */
block: '{' stmts '}'                  { $$ = $2; $$->span = @$; }
 | '{' stmts error '}'                { $$ = $2; $$->span = @$; yyerrok; }
 ;
stmts: %empty                         { $$ = NODE(N_BLOCK, @$, NULL, 0, 0); }
 | stmts stmt                         { $$ = parse_push(p, $1, $2); }
 | stmts error ';'                    { $$ = $1; yyerrok; }
 | stmts error block                  { (void)$3; $$ = $1; yyerrok; }
 ;
stmt: attrs1 bare_stmt                { $$ = parse_attrs($2, $1); }
 | bare_stmt
 ;
bare_stmt: block
 | const
 | TUNE tunes ';'                     { $$ = $2; }
 | TUNE error ';'                     { $$ = NODE(N_TUNE, @$, NULL, 0, 0); yyerrok; }
 | ASSUME '(' expr ')' ';'            { $$ = NODE(N_ASSUME, @$, NULL, 0, 1, $3); }
 | SCRATCH decls ';'                  { $$ = $2; $$->op = DECL_SCRATCH; }
 | scope decls ';'                    { $$ = $2; $$->op = $1; }
 | GRID '(' iters ')' THREADS expr gopts block        { $$ = NODE(N_GRID, @1, NULL, 0, 4, $3, $6, $7, $8); }
 | VAR name ':' type '=' expr ';'     { $$ = NODE(N_VAR, @2, $2, 0, 2, $4, $6); }
 | VAR name ':' type ';'              { $$ = NODE(N_VAR, @2, $2, 0, 2, $4, NULL); }
 | LET name '=' expr ';'              { $$ = NODE(N_LET, @2, $2, 0, 1, $4); }
 | loop '(' litems ')' body           { $$ = NODE(N_LOOP, @1, NULL, $1, 2, $3, $5); }
 | WHILE '(' expr ')' body            { $$ = NODE(N_WHILE, @1, NULL, 0, 2, $3, $5); }
 | IF '(' expr ')' body %prec THEN    { $$ = NODE(N_IF, @1, NULL, 0, 3, $3, $5, NULL); }
 | IF '(' expr ')' body ELSE body     { $$ = NODE(N_IF, @1, NULL, 0, 3, $3, $5, $7); }
 | BREAK ';'                          { $$ = NODE(N_BREAK, @1, NULL, 0, 0); }
 | RETURN expr ';'                    { $$ = NODE(N_RETURN, @1, NULL, 0, 1, $2); }
 | ROLE name THREADS expr ropts block { $$ = NODE(N_ROLE, @1, $2, 0, 4, NODE(N_NAME, @2, $2, 0, 0), $4, $5, $6); }
 | ROLE name '[' name IN expr ']' THREADS expr ropts block
                                      { $$ = NODE(N_ROLE, @1, $2, 0, 6, NODE(N_NAME, @2, $2, 0, 0), $9, $10, $11, $6,
                                                      NODE(N_NAME, @4, $4, 0, 0)); }
 | CHANNEL name tiles channel_options ';'             { $$ = NODE(N_CHANNEL, @2, $2, 0, 2, $3, $4); }
 | PRODUCE name block                 { $$ = NODE(N_PRODUCE, @1, $2, 0, 2, NODE(N_NAME, @2, $2, 0, 0), $3); }
 | CONSUME name block                 { $$ = NODE(N_CONSUME, @1, $2, 0, 2, NODE(N_NAME, @2, $2, 0, 0), $3); }
 | ORDERED name block                 { $$ = NODE(N_ORDERED, @1, $2, 0, 2, NODE(N_NAME, @2, $2, 0, 0), $3); }
 | THREAD '(' iters ')' block         { $$ = NODE(N_THREAD, @1, NULL, 0, 2, $3, $5); }
 | ASYNC call ';'                     { $$ = NODE(N_ASYNC, @$, NULL, 0, 1, $2); }
 | place '=' expr ';'                 { $$ = NODE(N_ASSIGN, @$, NULL, AST_PLAIN, 2, $1, $3); }
 | place OPEQ expr ';'                { $$ = NODE(N_ASSIGN, @$, NULL, $2, 2, $1, $3); }
 | call ';'                           { $$ = NODE(N_EVAL, @1, NULL, 0, 1, $1); }
 ;
body: stmt                            { $$ = parse_body(p, $1); }
 ;
ropts: %empty                         { $$ = NULL; }
 | REGS expr                          { $$ = $2; }
 ;
loop: FOR                             { $$ = LOOP_SERIAL; }
 | UNROLL                             { $$ = LOOP_UNROLL; }
 | VECTORIZED                         { $$ = LOOP_VECTORIZED; }
 | PARALLEL                           { $$ = LOOP_PARALLEL; }
 | PIPELINED                          { $$ = LOOP_PIPELINED; }
 ;
litems: litem                         { $$ = parse_push(p, LIST(@$), $1); }
 | litems ',' litem                   { $$ = parse_push(p, $1, $3); }
 ;
litem: iter
 | bind
 ;
tunes: tune                           { $$ = parse_push(p, NODE(N_TUNE, @$, NULL, 0, 0), $1); }
 | tunes ',' tune                     { $$ = parse_push(p, $1, $3); }
 ;
tune: name IN '{' exprs '}'           { $$ = NODE(N_TUNABLE, @1, $1, 0, 1, $4); }
 | name IN '{' error '}'              { $$ = NODE(N_TUNABLE, @1, $1, 0, 1, LIST(@$)); yyerrok; }
 ;
gopts: %empty                         { $$ = LIST(@$); }
 | gopts CLUSTER '(' exprs ')'        { $4->kind = N_CLUSTER; $4->text = $2; $4->span = @2; $$ = parse_push(p, $1, $4); }
 | gopts PERSISTENT                   { $$ = parse_push(p, $1, NODE(N_PERSISTENT, @2, $2, 0, 0)); }
 | gopts RASTER expr                  { $$ = parse_push(p, $1, NODE(N_RASTER, @2, $2, 0, 1, $3)); }
 ;
scope: SHARED                         { $$ = DECL_SHARED; }
 | FRAGMENT                           { $$ = DECL_FRAGMENT; }
 | LOCAL                              { $$ = DECL_LOCAL; }
 ;
tiles: %empty                         { $$ = NULL; }
 | ':' type dims                      { $$ = NODE(N_DECL, @$, NULL, 0, 3, $2, $3, NULL); }
 | '(' decls ')'                      { $$ = $2; }
 ;
channel_options: %empty               { $$ = LIST(@$); }
 | channel_options SLOTS expr         { $$ = parse_push(p, $1, NODE(N_NAMED, @2, $2, 0, 1, $3)); }
 | channel_options READERS expr       { $$ = parse_push(p, $1, NODE(N_NAMED, @2, $2, 0, 1, $3)); }
 | channel_options attr               { $$ = parse_push(p, $1, $2); }
 ;
decls: decl                           { $$ = parse_push(p, NODE(N_DECLS, @$, NULL, 0, 0), $1); }
 | decls ',' decl                     { $$ = parse_push(p, $1, $3); }
 ;
decl: name ':' type dims lay attrs    { $$ = parse_attrs(NODE(N_DECL, @1, $1, 0, 3, $3, $4, $5), $6); }
 ;
lay: %empty                           { $$ = NULL; }
 | LAYOUT STRING                      { $$ = NODE(N_STRING, @2, $2, 0, 0); }
 | LAYOUT call                        { $$ = $2; }
 ;
iters: iter                           { $$ = parse_push(p, LIST(@$), $1); }
 | iters ',' iter                     { $$ = parse_push(p, $1, $3); }
 ;
iter: name IN expr                    { $$ = NODE(N_ITER, @1, $1, 0, 3, NULL, $3, NULL); }
 | name IN expr STEP expr             { $$ = NODE(N_ITER, @1, $1, 0, 3, NULL, $3, $5); }
 | name IN expr DOTDOT expr           { $$ = NODE(N_ITER, @1, $1, 0, 3, $3, $5, NULL); }
 | name IN expr DOTDOT expr STEP expr { $$ = NODE(N_ITER, @1, $1, 0, 3, $3, $5, $7); }
 ;

/* ---- expressions ---- */
place: name                           { $$ = NODE(N_NAME, @1, $1, 0, 0); }
 | place '[' idxs ']'                 { $$ = parse_index(p, $3, $1, @$); }
 | call '[' idxs ']'                  { $$ = parse_index(p, $3, $1, @$); }
 | place '.' name                     { $$ = NODE(N_DOT, @$, $3, 0, 1, $1); }
 | call '.' name                      { $$ = NODE(N_DOT, @$, $3, 0, 1, $1); }
 ;
call: name '(' args ')'               { $$ = $3; $$->kind = N_CALL; $$->text = $1; $$->span = @$; }
 ;
idxs: idx                             { $$ = NODE(N_INDEX, @$, NULL, 0, 2, NULL, $1); }
 | idxs ',' idx                       { $$ = parse_push(p, $1, $3); }
 ;
idx: expr
 | ':'                                { $$ = NODE(N_ALL, @$, NULL, 0, 0); }
 | expr SPAN expr                     { $$ = NODE(N_SPAN, @$, NULL, 0, 3, $1, $3, NULL); }
 | expr SPAN expr STEP expr           { $$ = NODE(N_SPAN, @$, NULL, 0, 3, $1, $3, $5); }
 ;
args: %empty                          { $$ = LIST(@$); }
 | args1                              { $$ = $1; }
 ;
args1: arg                            { $$ = parse_push(p, LIST(@$), $1); }
 | args1 ',' arg                      { $$ = parse_push(p, $1, $3); }
 ;
arg: expr
 | bind
 | STRING                             { $$ = NODE(N_STRING, @1, $1, 0, 0); }
 ;
expr: place
 | call
 | INTEGER                            { $$ = parse_number(p, @1, $1, false); }
 | FLOATING                           { $$ = parse_number(p, @1, $1, true); }
 | '(' expr ')'                       { $$ = $2; }
 | '-' expr %prec UNARY               { $$ = NODE(N_UNARY, @$, NULL, UNARY_NEG, 1, $2); }
 | '!' expr %prec UNARY               { $$ = NODE(N_UNARY, @$, NULL, UNARY_NOT, 1, $2); }
 | '~' expr %prec UNARY               { $$ = NODE(N_UNARY, @$, NULL, UNARY_BITNOT, 1, $2); }
 | expr '?' expr ':' expr %prec '?'   { $$ = NODE(N_TERNARY, @$, NULL, 0, 3, $1, $3, $5); }
 | expr OROR expr                     { $$ = BINARY(BIN_LOGICAL_OR, @$, $1, $3); }
 | expr ANDAND expr                   { $$ = BINARY(BIN_LOGICAL_AND, @$, $1, $3); }
 | expr '|' expr                      { $$ = BINARY(BIN_OR, @$, $1, $3); }
 | expr '^' expr                      { $$ = BINARY(BIN_XOR, @$, $1, $3); }
 | expr '&' expr                      { $$ = BINARY(BIN_AND, @$, $1, $3); }
 | expr EQ expr                       { $$ = BINARY(BIN_EQ, @$, $1, $3); }
 | expr NE expr                       { $$ = BINARY(BIN_NE, @$, $1, $3); }
 | expr '<' expr                      { $$ = BINARY(BIN_LT, @$, $1, $3); }
 | expr '>' expr                      { $$ = BINARY(BIN_GT, @$, $1, $3); }
 | expr LE expr                       { $$ = BINARY(BIN_LE, @$, $1, $3); }
 | expr GE expr                       { $$ = BINARY(BIN_GE, @$, $1, $3); }
 | expr SHL expr                      { $$ = BINARY(BIN_SHL, @$, $1, $3); }
 | expr SHR expr                      { $$ = BINARY(BIN_SHR, @$, $1, $3); }
 | expr '+' expr                      { $$ = BINARY(BIN_ADD, @$, $1, $3); }
 | expr '-' expr                      { $$ = BINARY(BIN_SUB, @$, $1, $3); }
 | expr '*' expr                      { $$ = BINARY(BIN_MUL, @$, $1, $3); }
 | expr '/' expr                      { $$ = BINARY(BIN_DIV, @$, $1, $3); }
 | expr '%' expr                      { $$ = BINARY(BIN_MOD, @$, $1, $3); }
 ;
%%

// The words that begin nothing but a statement or a declaration.
static bool begins_statement(yysymbol_kind_t token) {
    static const yysymbol_kind_t words[] = {
        YYSYMBOL_GRID, YYSYMBOL_SHARED, YYSYMBOL_FRAGMENT, YYSYMBOL_LOCAL,    YYSYMBOL_VAR,       YYSYMBOL_LET,   YYSYMBOL_FOR,
        YYSYMBOL_UNROLL, YYSYMBOL_PARALLEL, YYSYMBOL_VECTORIZED, YYSYMBOL_PIPELINED, YYSYMBOL_WHILE, YYSYMBOL_IF,
        YYSYMBOL_BREAK, YYSYMBOL_RETURN, YYSYMBOL_CONST, YYSYMBOL_ASSUME, YYSYMBOL_THREAD, YYSYMBOL_TUNE, YYSYMBOL_KERNEL};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i] == token) return true;
    return false;
}

static int lang_lex(YYSTYPE *value, YYLTYPE *span, void *scanner) {
    Parse *p = lang_get_extra(scanner);
    if (p->replay == REPLAY_NONE) {
        p->token = lang_scan(value, span, scanner);
        p->token_text = value->text;
        bool bounds = p->token == ';' || p->token == '{' || p->token == '}' || begins_statement(YYTRANSLATE(p->token));
        p->run = bounds ? 0 : p->run + 1;
        return p->token;
    }
    *span = p->current;
    if (p->replay == REPLAY_SEMICOLON) {
        p->replay = REPLAY_TOKEN;
        return ';';
    }
    p->replay = REPLAY_NONE;
    value->text = p->token_text;
    return p->token;
}

// Tokens whose name is a word in quotes.
static bool is_keyword(const char *name) {
    return strlen(name) > 3 && name[0] == '\'' && name[1] >= 'a' && name[1] <= 'z';
}

// ---- messages ----
// An expected-token list is for people: operators that could go on with an expression say nothing, and where a whole
// class of tokens could stand (an expression, a statement), the class is named instead.

static bool continues(yysymbol_kind_t symbol) {
    const char *name = yysymbol_name(symbol);
    if (strlen(name) == 3) return strchr("?|^&<>+-*/%.[@", name[1]) != NULL;
    return symbol == YYSYMBOL_OROR || symbol == YYSYMBOL_ANDAND || symbol == YYSYMBOL_EQ || symbol == YYSYMBOL_NE ||
           symbol == YYSYMBOL_LE || symbol == YYSYMBOL_GE || symbol == YYSYMBOL_SHL || symbol == YYSYMBOL_SHR ||
           symbol == YYSYMBOL_OPEQ || symbol == YYSYMBOL_SPAN;
}

static bool listed(const yysymbol_kind_t *symbols, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(yysymbol_name(symbols[i]), name) == 0) return true;
    return false;
}

// The class of what may stand here; NULL: none, list the tokens.
static const char *expected_class(const yysymbol_kind_t *symbols, int count) {
    if (listed(symbols, count, "'while'")) return "a statement or '}'";
    if (listed(symbols, count, "a number")) return "an expression";
    if (listed(symbols, count, "a name")) return "a name";
    if (!listed(symbols, count, "'fn'")) return NULL;
    return "a declaration: kernel, program, fn, macro, const, import, reference or test";
}

static const char *expected_text(Parse *p, const yysymbol_kind_t *symbols, int count) {
    const char *class = expected_class(symbols, count);
    if (class) return class;
    StrBuf text;
    sb_init(&text, p->arena);
    int shown = 0, usable = 0;
    for (int i = 0; i < count; i++) usable += !continues(symbols[i]);
    for (int i = 0; i < count; i++) {
        if (continues(symbols[i])) continue;
        sb_str(&text, shown == 0 ? "" : shown == usable - 1 ? " or " : ", ");
        sb_str(&text, yysymbol_name(symbols[i]));
        shown++;
    }
    return shown ? sb_text(&text) : "something else";
}

static const char *token_text(Parse *p, yysymbol_kind_t token, const YYLTYPE *span) {
    if (token == YYSYMBOL_ID || token == YYSYMBOL_INTEGER || token == YYSYMBOL_FLOATING)
        return parse_source_text(p, *span);
    return token == YYSYMBOL_STRING ? "string" : yysymbol_name(token);
}

// An error at the end of the last token rather than at the next one, which may be lines below.
static Span after_last(const Parse *p) {
    return (Span){p->file, p->last.end_line, p->last.end_column, p->last.end_line, p->last.end_column + 1};
}

// Of a token that no other language explains: the keyword that was meant, the bracket that is not closed.
static void explain_token(Parse *p, Diag *d, Span at, const yysymbol_kind_t *expected, int count) {
    StrMap *words = strmap_new(p->arena);
    for (int i = 0; i < count; i++) {
        const char *name = yysymbol_name(expected[i]);
        if (is_keyword(name)) strmap_put(words, arena_strndup(p->arena, name + 1, strlen(name) - 2), words);
    }
    Foreign guess;
    if (!parse_suggest_keyword(p, d, at, words) && parse_foreign(p, FOREIGN_GUESS, at, &guess)) foreign_add(d, &guess);
    if (listed(expected, count, "')'") || listed(expected, count, "']'")) parse_label_bracket(p, d);
}

static bool token_is(yysymbol_kind_t token, const char *name) {
    return strcmp(yysymbol_name(token), name) == 0;
}

static int yyreport_syntax_error(const yypcontext_t *context, Parse *p, void *scanner) {
    (void)scanner;
    bool said = p->bad_token || p->too_deep;   // by the scanner
    p->bad_token = false;
    Span at = *yypcontext_location(context);
    if (said || parse_is_explained(p, at)) return 0;
    yysymbol_kind_t expected[YYNTOKENS];
    int count = yypcontext_expected_tokens(context, expected, YYNTOKENS);
    yysymbol_kind_t token = yypcontext_token(context);
    const char *got = token_text(p, token, &at), *wanted = expected_text(p, expected, count);
    bool consequence = (token_is(token, "'}'") && p->opened == 0) || token_is(token, "'else'");
    if (p->wrong.line && consequence) return 0;   // what it belongs to was passed over
    if (token == YYSYMBOL_YYEOF && p->opened > 0) {
        Span open = p->open[p->opened - 1];
        bool behind = p->wrong.line > open.line || (p->wrong.line == open.line && p->wrong.column > open.column);
        if (behind) return 0;   // where the parser went on it may have passed over the closing one
        Diag *d = diag(p->sink, after_last(p), T_TRUNCATED, wanted);
        diag_label(d, p->open[p->opened - 1], "opened here");
        return 0;
    }
    Foreign found;
    bool ends = listed(expected, count, "';'"), next_line = ends && at.line > p->last.end_line;
    bool foreign = parse_foreign(p, next_line ? FOREIGN_LINE : FOREIGN_SYNTAX, at, &found);
    if (foreign || !ends) {
        Diag *d = diag(p->sink, at, T_SYNTAX, got, wanted);
        p->wrong = at;
        bool word = got[0] == '\'' && (got[1] | 0x20) >= 'a' && (got[1] | 0x20) <= 'z';
        if (word && strcmp(wanted, "a name") == 0) diag_note(d, "%s is a reserved word", got);
        if (foreign) foreign_add(d, &found);
        else explain_token(p, d, at, expected, count);
    } else {
        Span end = {p->file, p->last.end_line, p->last.end_column, p->last.end_line, p->last.end_column};
        diag_fix(diag(p->sink, after_last(p), T_MISSING_SEMICOLON, got), end, ";");
        if (next_line && begins_statement(token)) p->replay = REPLAY_SEMICOLON;
    }
    return 0;
}

// Only an exhausted stack comes here: syntax errors go through yyreport_syntax_error.
static void lang_error(YYLTYPE *span, Parse *p, void *scanner, const char *text) {
    (void)scanner;
    (void)text;
    if (p->too_deep) return;
    if (p->run > p->nesting) {
        parse_too_many_operators(p, *span);
        return;
    }
    diag(p->sink, *span, T_NESTING, "statements", p->nesting);
    p->too_deep = true;
}

// ---- the words of the grammar: tokens whose name is a word in quotes ----
int syntax_keywords(Arena *arena, const char *const **words) {
    int count = 0;
    const char **found = NEW_ARRAY(arena, const char *, YYNTOKENS);
    for (int symbol = 0; symbol < YYNTOKENS; symbol++) {
        const char *name = yysymbol_name((yysymbol_kind_t)symbol);
        size_t length = strlen(name);
        if (is_keyword(name)) found[count++] = arena_strndup(arena, name + 1, length - 2);
    }
    *words = found;
    return count;
}

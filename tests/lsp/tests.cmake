# An editor's session with `tilec lsp`.
add_test(NAME lsp_session COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/lsp/session.py $<TARGET_FILE:tilec>
                                  ${PROJECT_SOURCE_DIR})
tilec_tier("release:1;debug:1" lsp_session)
set_tests_properties(lsp_session PROPERTIES TIMEOUT 300
                     REQUIRED_FILES "$<TARGET_FILE:tilec>;${CMAKE_CURRENT_SOURCE_DIR}/lsp;${PROJECT_SOURCE_DIR}/examples")

# The extension that packages the server, for VS Code.
add_test(NAME lsp_extension COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/lsp/packages.py ${PROJECT_SOURCE_DIR}
                                    $<TARGET_FILE:tilec>)
tilec_tier("release:1" lsp_extension)
set_tests_properties(lsp_extension PROPERTIES TIMEOUT 300
                     REQUIRED_FILES "$<TARGET_FILE:tilec>;${CMAKE_CURRENT_SOURCE_DIR}/lsp;${PROJECT_SOURCE_DIR}/editors")

# The grammar for editors with tree-sitter; .deps/tree-sitter is the generator that ./dev fetches.
add_test(NAME lsp_tree_sitter COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/lsp/tree_sitter.py ${PROJECT_SOURCE_DIR} $<TARGET_FILE:tilec>
                                      ${PROJECT_SOURCE_DIR}/.deps/tree-sitter/tree-sitter)
tilec_tier("release:1" lsp_tree_sitter)
set_tests_properties(lsp_tree_sitter PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77
                     REQUIRED_FILES "$<TARGET_FILE:tilec>;${CMAKE_CURRENT_SOURCE_DIR}/lsp;${PROJECT_SOURCE_DIR}/editors")

# What a maintainer of Compiler Explorer needs.
add_test(NAME compiler_explorer COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/lsp/compiler_explorer.py ${PROJECT_SOURCE_DIR}
                                        $<TARGET_FILE:tilec>)
tilec_tier("release:1" compiler_explorer)
set_tests_properties(compiler_explorer PROPERTIES TIMEOUT 300 REQUIRED_FILES
                     "$<TARGET_FILE:tilec>;${CMAKE_CURRENT_SOURCE_DIR}/lsp;${PROJECT_SOURCE_DIR}/editors;${PROJECT_SOURCE_DIR}/docs/tutorial/03_softmax.tile")

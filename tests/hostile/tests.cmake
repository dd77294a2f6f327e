# Bad input to the command; a part of the cases, since each is a process. All: --every 1, and more --rounds.
if(TARGET tilec)
  add_test(NAME hostile COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/hostile.py $<TARGET_FILE:tilec>
                                ${PROJECT_SOURCE_DIR}/tools/options.def --every 10 -j 2)
  add_test(NAME damaged_ir COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/damaged_ir.py $<TARGET_FILE:tilec>
                                   ${PROJECT_SOURCE_DIR} --rounds 60 -j 2)
  tilec_tier("debug:1" hostile damaged_ir)
  set_tests_properties(hostile damaged_ir PROPERTIES TIMEOUT 1500)
endif()

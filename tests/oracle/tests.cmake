# Random kernels on the emulator against a naive interpreter of the manual that shares no code with it (README.md).
if(TARGET tilec)
  add_test(NAME oracle COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/oracle.py $<TARGET_FILE:tilec> --count 300)
  add_test(NAME oracle_more COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/oracle.py $<TARGET_FILE:tilec>
                                    --count 3000 --seed 1000)
  tilec_tier("release:1;debug:2" oracle)
  tilec_tier("release:2" oracle_more)
  set_tests_properties(oracle oracle_more PROPERTIES TIMEOUT 1800 REQUIRED_FILES ${CMAKE_CURRENT_LIST_DIR})
endif()

# What must go red: wrong programs, and lowered programs without one of their barriers or waits. More than a thousand runs of the
# emulator: `./dev test` has the release build do it, in a fifth of the time that sanitizers take.
if(TARGET tilec)
  set(examples_of_source /examples)
  foreach(mutation source sync)
    add_test(NAME ${mutation}_mutations
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/${mutation}_mutations.py $<TARGET_FILE:tilec>
                     ${CMAKE_SOURCE_DIR}${examples_of_${mutation}} -j 3)
    set_tests_properties(${mutation}_mutations PROPERTIES LABELS mutations TIMEOUT 4500 PROCESSORS 3
                         COST 1000)   # first: the longest
  endforeach()
endif()

# Faults of the passes: a few, drawn by the seed. README.md has the command for many.
if(TARGET tilec)
  add_test(NAME faults_sample COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/faults.py ${PROJECT_SOURCE_DIR}
                                      ${PROJECT_BINARY_DIR} --count 20 --longest 2 --least 0.65)
  tilec_tier("release:2;seeded;uncached" faults_sample)
  set_tests_properties(faults_sample PROPERTIES TIMEOUT 3000)
endif()

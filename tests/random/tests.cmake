# A sample of the random shapes; the whole list is for by hand and for the GPU.
if(TARGET tilec)
  add_test(NAME random_shapes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_shapes.py test
                                      $<TARGET_FILE:tilec> ${CMAKE_SOURCE_DIR}/examples --count 40 -j 2)
  set_tests_properties(random_shapes PROPERTIES TIMEOUT 600 PROCESSORS 2)
endif()

# Two hundred random shapes; README of tests/gpu says how the same list runs on a device.
if(TARGET tilec)
  add_test(NAME random_shapes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_shapes.py test
                                      $<TARGET_FILE:tilec> ${CMAKE_SOURCE_DIR}/examples -j 2)
  set_tests_properties(random_shapes PROPERTIES TIMEOUT 600 PROCESSORS 2)
  # Divergent control flow, before any pass and after all.
  add_test(NAME random_control_flow COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/control_flow.py
                                            $<TARGET_FILE:tilec> --count 200)
  add_test(NAME random_control_flow_tile COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/control_flow.py
                                                 $<TARGET_FILE:tilec> --count 200 --seed 2 -- --passes=none)
endif()

# Two hundred random shapes; README of tests/gpu says how the same list runs on a device.
if(TARGET tilec)
  add_test(NAME random_shapes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_shapes.py test
                                      $<TARGET_FILE:tilec> ${CMAKE_SOURCE_DIR}/examples -j 1)
  set_tests_properties(random_shapes PROPERTIES TIMEOUT 600)
  # GEMM kernels of random types, operand orders and tiles, as they leave the passes; two hundred run on a device.
  foreach(target sm_80 sm_90a)
    add_test(NAME random_gemm_${target}
             COMMAND bash -c "${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/gpu/random_gemm.py $0 25 2 && $1 test --target=${target} $0/random_gemm_0.tile"
                     ${CMAKE_CURRENT_BINARY_DIR}/random_gemm_${target} $<TARGET_FILE:tilec>)
    set_tests_properties(random_gemm_${target} PROPERTIES TIMEOUT 600)
  endforeach()
  # Products by every wgmma instruction; all numbers of columns run on a device.
  add_test(NAME wgmma_shapes
           COMMAND bash -c "${Python3_EXECUTABLE} $2 $0 8 24 48 144 200 256 && ${Python3_EXECUTABLE} $2 --check $1 $0 && for f in $0/*.tile; do $1 test --target=sm_90a $f || exit 1; done"
                   ${CMAKE_CURRENT_BINARY_DIR}/wgmma_shapes $<TARGET_FILE:tilec> ${CMAKE_SOURCE_DIR}/tests/gpu/wgmma_shapes.py)
  set_tests_properties(wgmma_shapes PROPERTIES TIMEOUT 600)
  # Divergent control flow, before any pass and after all.
  add_test(NAME random_control_flow COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/control_flow.py
                                            $<TARGET_FILE:tilec> --count 200)
  add_test(NAME random_control_flow_tile COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/control_flow.py
                                                 $<TARGET_FILE:tilec> --count 200 --seed 2 -- --passes=none)
  # Tile operations of odd shapes and all types.
  foreach(target sm_80 sm_90a)
    add_test(NAME random_tile_programs_${target}
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/tile_programs.py $<TARGET_FILE:tilec> -- --target=${target})
  endforeach()
  tilec_tier("release:1;debug:1" random_shapes random_gemm_sm_80 random_gemm_sm_90a wgmma_shapes random_control_flow
             random_control_flow_tile random_tile_programs_sm_80 random_tile_programs_sm_90a)
endif()

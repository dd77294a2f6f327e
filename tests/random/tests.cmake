# Two hundred random shapes; README of tests/gpu says how the same list runs on a device.
if(TARGET tilec)
  add_test(NAME random_shapes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_shapes.py test
                                      $<TARGET_FILE:tilec> ${PROJECT_SOURCE_DIR}/examples -j 1)
  set_tests_properties(random_shapes PROPERTIES TIMEOUT 600)
  # GEMM kernels of random types, operand orders and tiles, as they leave the passes; two hundred run on a device.
  foreach(target sm_80 sm_90a)
    add_test(NAME random_gemm_${target}
             COMMAND bash -c "${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/gpu/random_gemm.py $0 25 2 && $1 test --target=${target} $0/random_gemm_0.tile"
                     ${CMAKE_CURRENT_BINARY_DIR}/random_gemm_${target} $<TARGET_FILE:tilec>)
    set_tests_properties(random_gemm_${target} PROPERTIES TIMEOUT 600)
  endforeach()
  # Products by every wgmma instruction; all numbers of columns run on a device.
  add_test(NAME wgmma_shapes
           COMMAND bash -c "${Python3_EXECUTABLE} $2 $0 8 24 48 144 200 256 && ${Python3_EXECUTABLE} $2 --check $1 $0 && for f in $0/*.tile; do $1 test --target=sm_90a $f || exit 1; done"
                   ${CMAKE_CURRENT_BINARY_DIR}/wgmma_shapes $<TARGET_FILE:tilec> ${PROJECT_SOURCE_DIR}/tests/gpu/wgmma_shapes.py)
  set_tests_properties(wgmma_shapes PROPERTIES TIMEOUT 600)
  # Programs over the whole language, at every stage; in tier 2 more of them, and those of a seed for each commit.
  add_test(NAME random_programs COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_programs.py $<TARGET_FILE:tilec>
                                        --seed 1 --count 25 --reduce-s 0)
  add_test(NAME random_programs_lanes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_programs.py $<TARGET_FILE:tilec>
                                              --seed 1 --count 10 --profile lanes --reduce-s 0)
  add_test(NAME random_programs_products COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_programs.py $<TARGET_FILE:tilec>
                                                 --seed 1 --count 20 --profile products --target sm_90a --reduce-s 0)
  add_test(NAME random_programs_channels COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_programs.py $<TARGET_FILE:tilec>
                                                 --seed 1 --count 12 --profile channels --reduce-s 0)
  add_test(NAME random_programs_more COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_programs.py $<TARGET_FILE:tilec>
                                             --seed ${known_seed} --count 300)
  add_test(NAME random_programs_new COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_programs.py $<TARGET_FILE:tilec>
                                            --minutes 4)
  # What generated code computes of constants.
  add_test(NAME folded_code COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/folded_code.py $<TARGET_FILE:tilec> --count 60)
  set_tests_properties(random_programs random_programs_lanes random_programs_products random_programs_channels random_programs_more
                       random_programs_new folded_code
                       PROPERTIES TIMEOUT 1800 REQUIRED_FILES "${CMAKE_CURRENT_LIST_DIR};${PROJECT_SOURCE_DIR}/tests/oracle")
  # Conversions of fragments: right, by the cheapest way, with the wavefronts that are printed; 2,000 in tier 2.
  add_test(NAME random_conversions COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_conversions.py
                                           $<TARGET_FILE:tilec> --count 100)
  add_test(NAME random_conversions_odd COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_conversions.py
                                               $<TARGET_FILE:tilec> --profile odd --count 60)
  add_test(NAME random_conversions_odd_more COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_conversions.py
                                                    $<TARGET_FILE:tilec> --profile odd --seed 1000 --count 1000)
  foreach(target sm_80 sm_90a sm_120a)
    add_test(NAME random_conversions_${target} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_conversions.py
                                                       $<TARGET_FILE:tilec> --count 2000 --target ${target})
    set_tests_properties(random_conversions_${target} PROPERTIES TIMEOUT 1800)
    tilec_tier("release:2" random_conversions_${target})
  endforeach()
  # What Nsight Compute is to count of two of them, of which one goes by matrix instructions.
  add_test(NAME conversion_wavefronts COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/../gpu/conversion_wavefronts.py prepare
                                              $<TARGET_FILE:tilec> ${CMAKE_CURRENT_BINARY_DIR}/wavefronts --count 2 --seed 50)
  set_tests_properties(conversion_wavefronts PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77
                       REQUIRED_FILES "${CMAKE_CURRENT_LIST_DIR};${CMAKE_CURRENT_LIST_DIR}/../gpu/conversion_wavefronts.py")
  tilec_tier("release:1" conversion_wavefronts)
  # Views of shared tiles that products read.
  add_test(NAME random_views COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_views.py $<TARGET_FILE:tilec> --count 30)
  tilec_tier("release:1" random_views)
  # Which fragments are converted, against all choices; 100 programs in tier 2.
  add_test(NAME random_placements COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_placements.py $<TARGET_FILE:tilec>
                                          --count 8)
  add_test(NAME random_placements_more COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_placements.py $<TARGET_FILE:tilec>
                                               --count 100 --seed 1000 --target sm_80)
  set_tests_properties(random_conversions random_conversions_odd random_conversions_odd_more random_placements random_placements_more PROPERTIES TIMEOUT 600)
  # Sources of the same meaning have the same plan: 20 of each family in tier 2.
  foreach(count 2 20)
    add_test(NAME plans_${count} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/plans.py $<TARGET_FILE:tilec> ${PROJECT_SOURCE_DIR}
                                         --count ${count})
    set_tests_properties(plans_${count} PROPERTIES TIMEOUT 1800 REQUIRED_FILES "${PROJECT_SOURCE_DIR}/examples;${PROJECT_SOURCE_DIR}/tests/oracle")
  endforeach()
  tilec_tier("release:1" plans_2)
  tilec_tier("release:2" plans_20)
  tilec_tier("release:1" random_conversions random_conversions_odd random_placements)
  tilec_tier("release:2" random_conversions_odd_more random_placements_more)
  tilec_tier("release:1;debug:1" random_shapes random_gemm_sm_80 random_gemm_sm_90a wgmma_shapes random_programs random_programs_lanes
             random_programs_products random_programs_channels)
  tilec_tier("release:1" folded_code)
  tilec_tier("release:2" random_programs_more)
  tilec_tier("release:2;new_seeds" random_programs_new)
endif()

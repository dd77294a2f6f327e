# What must fail: wrong programs, and lowered programs (examples, and random ones) without one of their barriers or waits. More
# than a thousand runs of the emulator: all of them one example or one case at a time, and a sample that another seed makes another one.
if(TARGET tilec)
  set(sync_driver ${CMAKE_CURRENT_LIST_DIR}/sync_mutations.py)
  set(sync ${Python3_EXECUTABLE} ${sync_driver} $<TARGET_FILE:tilec> ${PROJECT_SOURCE_DIR})
  set(source ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/source_mutations.py $<TARGET_FILE:tilec> ${PROJECT_SOURCE_DIR}/examples)
  add_test(NAME source_mutations_texts COMMAND ${source} --texts)
  tilec_tier("release:0" source_mutations_texts)
  add_test(NAME sync_mutations_launches COMMAND ${sync} -j 1 --launches)
  tilec_tier("release:1" sync_mutations_launches)
  add_test(NAME source_mutations_sample COMMAND ${source} -j 1 --sample 1)
  add_test(NAME sync_mutations_sample COMMAND ${sync} -j 1 --sample 1)
  tilec_tier("release:1;seeded" source_mutations_sample sync_mutations_sample)
  set(failing ${CMAKE_CURRENT_LIST_DIR}/failing.py)
  set_tests_properties(source_mutations_texts sync_mutations_launches source_mutations_sample sync_mutations_sample PROPERTIES
                       REQUIRED_FILES ${failing})

  set(random ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/random_mutations.py $<TARGET_FILE:tilec>)
  add_test(NAME random_mutations_sample COMMAND ${random} --seed 7 --count 7)
  add_test(NAME random_mutations COMMAND ${random} --seed ${known_seed} --count 20)
  add_test(NAME random_mutations_new COMMAND ${random} --count 40)
  set_tests_properties(random_mutations_sample random_mutations random_mutations_new PROPERTIES TIMEOUT 1800
    REQUIRED_FILES "${CMAKE_CURRENT_LIST_DIR};${PROJECT_SOURCE_DIR}/tests/random;${PROJECT_SOURCE_DIR}/tests/oracle")
  tilec_tier("release:1" random_mutations_sample)
  tilec_tier("release:2" random_mutations)
  tilec_tier("release:2;new_seeds" random_mutations_new)

  foreach(example ${examples})
    get_filename_component(name ${example} NAME_WE)
    add_test(NAME source_mutations_${name} COMMAND ${source} -j 1 --only ${name})
    tilec_tier("release:2" source_mutations_${name})
    set_tests_properties(source_mutations_${name} PROPERTIES REQUIRED_FILES ${failing})
  endforeach()

  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sync_driver})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${sync_driver} - - --list OUTPUT_VARIABLE cases COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" cases "${cases}")
  foreach(case ${cases})
    add_test(NAME sync_mutations_${case} COMMAND ${sync} -j 1 --case ${case})
    tilec_tier("release:2" sync_mutations_${case})
    set_tests_properties(sync_mutations_${case} PROPERTIES REQUIRED_FILES ${failing})
  endforeach()

  # Channels at tile stage: each begin and end of a slot is needed.
  add_test(NAME channel_mutations COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/channel_mutations.py $<TARGET_FILE:tilec>
                                          ${PROJECT_SOURCE_DIR}/tests/programs/channels.tile
                                          ${PROJECT_SOURCE_DIR}/tests/lit/passes/lower-channels.tile)
  tilec_tier("release:1" channel_mutations)
endif()

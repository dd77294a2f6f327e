# Programs that use what no pass lowers yet, and those written by hand for a GPU: as written, on the emulator. The others are
# in ../CMakeLists.txt.
if(TARGET tilec)
  file(GLOB emulated CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/emulated/*.tile ${CMAKE_CURRENT_LIST_DIR}/../gpu/*.tile)
  foreach(program ${emulated})
    get_filename_component(name ${program} NAME_WE)
    add_test(NAME emulated_${name} COMMAND tilec test --passes=none --target=sm_90a ${program})
    tilec_tier("release:0;debug:1" emulated_${name})
    set_tests_properties(emulated_${name} PROPERTIES TIMEOUT 300)
  endforeach()
endif()

add_test(NAME program_coverage COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/coverage.py ${PROJECT_SOURCE_DIR})
tilec_tier("release:0" program_coverage)

# Takes the tree into another project in both ways, for a system with multiarch folders: it configures, all that the
# project's program needs can be built, and the file for pkg-config finds header and library. Builds nothing but what
# is small. Run by ctest: cmake -DWORK= -DSOURCE= -DTILEC= -DGENERATOR= -P subproject.cmake
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
foreach(fetch OFF ON)
  set(build ${WORK}/fetch_${fetch})
  step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${build} -DTILEC=${TILEC} -DFETCH=${fetch}
       -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu -DCMAKE_INSTALL_PREFIX=/usr)
  step(${CMAKE_COMMAND} --build ${build} --target embedder -- -n)
endforeach()
step(${CMAKE_COMMAND} --build ${build} --target tilec_support)

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(PKG_CONFIG)
  file(GLOB_RECURSE pc ${build}/tilec.pc)
  file(COPY ${pc} DESTINATION ${WORK}/usr/lib/x86_64-linux-gnu/pkgconfig)
  set(ENV{PKG_CONFIG_PATH} ${WORK}/usr/lib/x86_64-linux-gnu/pkgconfig)
  foreach(pair includedir=usr/include libdir=usr/lib/x86_64-linux-gnu)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 name)
    list(GET pair 1 want)
    execute_process(COMMAND ${PKG_CONFIG} --variable=${name} tilec OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
                    COMMAND_ERROR_IS_FATAL ANY)
    get_filename_component(found ${found} ABSOLUTE)
    if(NOT found STREQUAL ${WORK}/${want})
      message(FATAL_ERROR "tilec.pc: ${name} is ${found}, not ${WORK}/${want}")
    endif()
  endforeach()
endif()

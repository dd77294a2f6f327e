# Writes a header with the commit that `tilec --version` names: cmake -D SOURCE=.. -D COMMIT=.. -D OUT=.. -P Commit.cmake
# COMMIT is empty: that of the repository whose top SOURCE is, if there is one. The header is written where it changes.
if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE COMMIT ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(text "#define TILEC_COMMIT \"commit:${COMMIT}\"   // so that tests/step_cache.py finds it\n")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()

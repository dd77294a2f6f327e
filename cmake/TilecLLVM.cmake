# The interface target `llvm`: headers and libraries of LLVM 22, shared by default.
add_library(llvm INTERFACE)
find_program(LLVM_CONFIG NAMES llvm-config-22 HINTS /usr/lib/llvm-22/bin)
if(NOT LLVM_CONFIG)
  message(FATAL_ERROR "llvm-config-22 was not found: run ./dev setup, or set LLVM_CONFIG to LLVM 22's llvm-config")
endif()
function(llvm_config variable)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE out OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} ${out} PARENT_SCOPE)
endfunction()

llvm_config(LLVM_INCLUDE_DIR --includedir)
llvm_config(LLVM_LIB_DIR --libdir)
llvm_config(LLVM_BIN_DIR --bindir)
target_include_directories(llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIR})

# Its BLAKE3 alone, plain C: what runtime/cache/ needs of LLVM, also in libtilec, which is linked without it.
set(LLVM_BLAKE3 ${LLVM_LIB_DIR}/libLLVMSupport.a)

if(TILEC_STATIC_TOOL)
  llvm_config(LLVM_STATIC --link-static --libs nvptx passes irreader linker bitreader)
  separate_arguments(LLVM_STATIC)
  find_library(TILEC_ZLIB NAMES ${TILEC_STATIC_ZLIB} z REQUIRED)
  find_library(TILEC_ZSTD NAMES ${TILEC_STATIC_ZSTD} zstd libzstd.so.1 REQUIRED)
  list(PREPEND LLVM_STATIC -L${LLVM_LIB_DIR})
  list(APPEND LLVM_STATIC ${TILEC_ZLIB} ${TILEC_ZSTD} rt dl m)
endif()

target_link_libraries(llvm INTERFACE -L${LLVM_LIB_DIR} -lLLVM-22)

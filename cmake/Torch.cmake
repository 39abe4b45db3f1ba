# Imported targets for the pinned torch wheel, without find_package(Torch): that would link
# libtorch.so and with it CUDA. Torch::Cpu is libtorch_cpu and libc10 and what they need.
if(NOT TORCH_PREFIX)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/cmake/deps.sh --torch-prefix
    OUTPUT_VARIABLE TORCH_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(TORCH_LIB ${TORCH_PREFIX}/torch/lib)
if(NOT EXISTS ${TORCH_LIB}/libtorch_cpu.so)
  message(FATAL_ERROR "no LibTorch in '${TORCH_PREFIX}': run `make deps`")
endif()
foreach(name c10 torch_cpu)
  add_library(torch_${name} SHARED IMPORTED)
  set_target_properties(torch_${name} PROPERTIES IMPORTED_LOCATION ${TORCH_LIB}/lib${name}.so)
endforeach()
# The OpenMP runtime that LibTorch itself uses: two of them in a process would be two pools of threads.
add_library(torch_gomp SHARED IMPORTED)
set_target_properties(torch_gomp PROPERTIES IMPORTED_LOCATION ${TORCH_LIB}/libgomp.so.1)
add_library(Torch::Cpu INTERFACE IMPORTED)
# Behind the system's headers: the wheel ships its own fmt, protobuf and pybind11.
target_compile_options(Torch::Cpu INTERFACE
  "SHELL:-idirafter ${TORCH_PREFIX}/torch/include"
  "SHELL:-idirafter ${TORCH_PREFIX}/torch/include/torch/csrc/api/include")
target_compile_definitions(Torch::Cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO FMT_HEADER_ONLY=1)
target_link_libraries(Torch::Cpu INTERFACE torch_torch_cpu torch_c10 torch_gomp)
# Where the libraries lie CMake itself writes into what is built, and takes out of what is installed.
target_link_options(Torch::Cpu INTERFACE -Wl,-rpath-link,${TORCH_PREFIX}/nvidia/cu13/lib)

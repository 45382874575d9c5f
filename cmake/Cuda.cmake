# CUDA, where nvcc is there. Its objects go into the C++ libraries and everything is linked as C++: the host compiler's
# settings (sanitizers too) hold for all that runs on the host.
find_program(NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
set(COPRIME_CUDA_ARCHITECTURE 90 CACHE STRING "The oldest GPU that the kernels run on: 89 or later (FP8)")
if(NVCC)
  get_filename_component(cuda_root ${NVCC} DIRECTORY)
  get_filename_component(cuda_root ${cuda_root} DIRECTORY)
  find_path(cuda_INCLUDE cuda_runtime_api.h HINTS ${cuda_root}/include)
  find_library(cudart_LIBRARY cudart_static HINTS ${cuda_root}/lib64)
endif()
if(NVCC AND cuda_INCLUDE AND cudart_LIBRARY)
  set(COPRIME_HAS_cuda TRUE)
  add_library(cudart INTERFACE IMPORTED GLOBAL)
  target_include_directories(cudart INTERFACE ${cuda_INCLUDE})
  target_link_libraries(cudart INTERFACE ${cudart_LIBRARY} ${CMAKE_DL_LIBS} rt)
else()
  message(STATUS "nvcc is missing: built without CUDA")
endif()

# coprime_cuda_objects(OUT source ...): the objects of .cu files. Bits are compared: nothing is contracted or flushed.
function(coprime_cuda_objects out)
  set(objects)
  foreach(source ${ARGN})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    get_filename_component(folder ${object} DIRECTORY)
    get_filename_component(folder_of_source ${source} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d COMMENT "Building CUDA object ${name}.o"
      COMMAND ${CCACHE} ${NVCC} -c -O3 -std=c++20 -arch=sm_${COPRIME_CUDA_ARCHITECTURE} -fmad=false -ftz=false
        --expt-relaxed-constexpr --extended-lambda -Werror all-warnings -Xcompiler -ffp-contract=off
        -I${PROJECT_SOURCE_DIR}/src -I${folder_of_source} -MD -MF ${object}.d -o ${object} ${source})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

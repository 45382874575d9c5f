# coprime_folder(NAME DEPS ... [TEST_DEPS ...] [OPTIONAL_PARTS ...])
#
# Makes the library coprime_NAME of every .cpp below src/NAME (main.cpp and *_test.cpp apart), and, where *_test.cpp files
# stand beside them, one executable NAME_test whose cases CTest lists one by one. What lies in a folder testing/ is built
# into the tests alone.
# A test whose suite is named *Soak* carries the label `soak`.
# Of a folder PART among the optional parts, everything but PART_stub.cpp is built where COPRIME_HAS_PART is true, and
# PART_stub.cpp alone where it is not (none is needed where nothing outside of the part uses it).
# A .cu file is built by nvcc.
option(COPRIME_TESTS "Build the tests" ON)

function(coprime_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;TEST_DEPS;OPTIONAL_PARTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp ${PROJECT_SOURCE_DIR}/src/${name}/*.cu)
  foreach(part ${ARG_OPTIONAL_PARTS})
    set(stub ${PROJECT_SOURCE_DIR}/src/${name}/${part}/${part}_stub.cpp)
    if(COPRIME_HAS_${part})
      list(REMOVE_ITEM sources ${stub})
    else()
      list(FILTER sources EXCLUDE REGEX "/src/${name}/${part}/")
      if(EXISTS ${stub})
        list(APPEND sources ${stub})
      endif()
    endif()
  endforeach()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "(_test\\.cpp|/testing/[^/]*)$")
  list(FILTER sources EXCLUDE REGEX "((_test|/main)\\.cpp|/testing/[^/]*)$")
  if(NOT sources)
    return()
  endif()
  set(cuda_sources ${sources})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cu$")
  list(FILTER sources EXCLUDE REGEX "\\.cu$")
  if(cuda_sources)
    coprime_cuda_objects(objects ${cuda_sources})
    list(APPEND sources ${objects})
  endif()

  set(deps)
  foreach(dep ${ARG_DEPS})
    if(TARGET coprime_${dep})
      list(APPEND deps coprime_${dep})
    else()
      list(APPEND deps ${dep})
    endif()
  endforeach()

  add_library(coprime_${name} STATIC ${sources})
  target_include_directories(coprime_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(coprime_${name} PUBLIC ${deps} PRIVATE coprime_warnings)
  coprime_precompile(coprime_${name})

  if(COPRIME_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE coprime_${name} coprime_warnings GTest::gtest_main ${ARG_TEST_DEPS})
    target_compile_definitions(${name}_test PRIVATE COPRIME_SOURCE_DIR="${PROJECT_SOURCE_DIR}" COPRIME_BINARY_DIR="${PROJECT_BINARY_DIR}")
    coprime_precompile(${name}_test)
    gtest_discover_tests(${name}_test TEST_FILTER -*Soak* DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
    gtest_discover_tests(${name}_test TEST_FILTER *Soak* TEST_LIST ${name}_soak_list DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 1800 LABELS soak)
  endif()
endfunction()

# Compiler settings, and the libraries that the distribution's packages bring (scripts/packages.txt).
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(simdjson REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(hwy REQUIRED CONFIG)
find_package(ZLIB REQUIRED)
find_package(yaml-cpp REQUIRED CONFIG)

function(coprime_system_library name header library)
  find_path(${name}_INCLUDE ${header} REQUIRED)
  find_library(${name}_LIBRARY ${library} REQUIRED)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} INTERFACE ${${name}_INCLUDE})
  target_link_libraries(${name} INTERFACE ${${name}_LIBRARY})
endfunction()
coprime_system_library(xxhash xxhash.h xxhash)
coprime_system_library(pcre2 pcre2.h pcre2-8)
coprime_system_library(utf8proc utf8proc.h utf8proc)
coprime_system_library(sodium sodium.h sodium)
coprime_system_library(sqlite3 sqlite3.h sqlite3)

# Optional parts need a header alone: their libraries are loaded at run time.
function(coprime_optional_part part header)
  find_path(${part}_INCLUDE ${header} HINTS ${ARGN})
  if(${part}_INCLUDE)
    set(COPRIME_HAS_${part} TRUE PARENT_SCOPE)
  else()
    message(STATUS "${header} is missing: built without ${part}")
  endif()
endfunction()
coprime_optional_part(verbs infiniband/verbs.h)
coprime_optional_part(ucx ucp/api/ucp.h)
# Debian keeps it apart, beside the library of its version.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PMIX QUIET pmix)
endif()
coprime_optional_part(pmix pmix.h ${PMIX_INCLUDE_DIRS})

if(NOT TARGET hwy::hwy)
  add_library(hwy::hwy ALIAS hwy)
endif()

option(COPRIME_TESTS "Build the tests" ON)
if(COPRIME_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# Bits are compared across ranks and kernels: no contraction that the source does not ask for.
add_compile_options(-ffp-contract=off -fno-math-errno -fno-trapping-math)
link_libraries(Threads::Threads)

add_library(coprime_warnings INTERFACE)
# clang builds the fuzzers alone: g++ is the one that warns. g++ 12 sees overflows in std::string that are not there (GCC bugs 105329, 105651): those warnings stay off.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(coprime_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Werror)
endif()

# One precompiled header for all: coprime_base builds it.
function(coprime_precompile target)
  if(target STREQUAL coprime_base)
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem>
      <functional> <memory> <optional> <span> <string> <string_view> <thread> <unordered_map> <utility> <vector> <fmt/format.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM coprime_base)
  endif()
endfunction()

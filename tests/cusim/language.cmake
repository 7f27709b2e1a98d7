# Included by tests/CMakeLists.txt, as a language is enabled where all its users are below: DDP_STANDIN says whether the
# tests on the stand-in for a GPU can be built here, and C++ is enabled if so.

# In a build for GPUs the device's own functions would be there twice.
set(DDP_STANDIN OFF)
if(DDP_CUDA_ROOT AND NOT DDP_CUDA_BUILD AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    include(CheckLanguage)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER)
        enable_language(CXX)
    endif()
    # clang calls a function at each access to shared memory that is declared elsewhere, and its thread sanitizer follows
    # 255 threads at most.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND (NOT DDP_SANITIZE OR CMAKE_C_COMPILER_ID STREQUAL "GNU"))
        set(DDP_STANDIN ON)
    else()
        message(STATUS "CUDA: the stand-in for a GPU wants g++ (apt-get install g++), so its tests are left out")
    endif()
endif()

# Where NVIDIA's headers are: ddp_dep::cuda_headers and DDP_CUDA_ROOT, or DDP_CUDA_ROOT empty and one line that says
# what is left out. The toolkit's folder, or the one that base/cuda_wheels.sh fills from PyPI.
# The stand-in of tests/cusim needs the headers alone; no library of NVIDIA's is linked to it.

option(DDP_ENABLE_CUDA "Build for NVIDIA GPUs; preset gpu" OFF)
set(CUDAToolkit_ROOT "" CACHE PATH "The CUDA toolkit's folder")

set(DDP_CUDA_ROOT)
foreach(folder "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" /usr/local/cuda ${PROJECT_SOURCE_DIR}/build/cuda)
    set(ddp_cuda_missing)
    foreach(header cuda_runtime_api.h crt/host_config.h cuda_bf16.h cublasLt.h cudnn.h nccl.h)
        if(NOT EXISTS "${folder}/include/${header}")
            list(APPEND ddp_cuda_missing ${header})
        endif()
    endforeach()
    if(folder AND NOT ddp_cuda_missing)
        set(DDP_CUDA_ROOT "${folder}")
        break()
    endif()
endforeach()

if(DDP_CUDA_ROOT)
    add_library(ddp_dep_cuda_headers INTERFACE)
    add_library(ddp_dep::cuda_headers ALIAS ddp_dep_cuda_headers)
    target_include_directories(ddp_dep_cuda_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${DDP_CUDA_ROOT}/include>)
elseif(DDP_BUILD_TESTS)
    message(STATUS "CUDA: no headers of the toolkit, NCCL and cuDNN, so the tests on a stand-in for a GPU are left out; "
        "sh base/cuda_wheels.sh gets them from PyPI")
endif()

# DDP_CUDA_BUILD: whether this build is for GPUs. cudart is linked, as a static library that looks for the driver when the
# program runs; cuBLASLt, cuDNN and NCCL are loaded then as well, so nothing else of the toolkit is needed here.
set(DDP_CUDA_BUILD OFF)
if(DDP_ENABLE_CUDA)
    find_program(DDP_NVCC nvcc PATHS "${DDP_CUDA_ROOT}/bin" NO_DEFAULT_PATH)
    find_library(DDP_CUDART cudart_static PATHS "${DDP_CUDA_ROOT}/lib64" "${DDP_CUDA_ROOT}/lib" NO_DEFAULT_PATH)
    if(DDP_CUDA_ROOT AND DDP_NVCC AND DDP_CUDART)
        set(DDP_CUDA_BUILD ON)
    else()
        message(STATUS "CUDA: DDP_ENABLE_CUDA is on, but nvcc, cudart or a header is missing, so this build is for the CPU; "
            "install the toolkit, or sh base/cuda_wheels.sh nvcc")
    endif()
endif()
set(DDP_CUDA_ARCHITECTURES 80 90 CACHE STRING "GPUs to build for; newer ones compile what is for the last at start")

# ddp_add_cuda_sources(<target> SOURCES x.cu... y.c...): .cu by nvcc, .c by the C compiler, into the target. What ptxas says of
# registers and spills is kept beside each object, <object>.ptxas, for tests/cuda/ptxas.sh.
function(ddp_add_cuda_sources target)
    cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
    set(options -std=c++17 -O3 -lineinfo -Xptxas=-v --Werror=all-warnings
        -Xcompiler=-Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
        -I${PROJECT_SOURCE_DIR} -isystem=${DDP_CUDA_ROOT}/include -D_GNU_SOURCE)
    if(DDP_WERROR)
        list(APPEND options -Xcompiler=-Werror)
    endif()
    foreach(architecture ${DDP_CUDA_ARCHITECTURES})
        list(APPEND options -gencode=arch=compute_${architecture},code=sm_${architecture})
    endforeach()
    list(GET DDP_CUDA_ARCHITECTURES -1 newest)
    list(APPEND options -gencode=arch=compute_${newest},code=compute_${newest})
    set(logs)
    foreach(source ${ARG_SOURCES})
        if(NOT source MATCHES "\\.cu$")
            target_sources(${target} PRIVATE ${source})
            continue()
        endif()
        get_filename_component(name ${source} NAME)
        set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
        add_custom_command(OUTPUT ${object} BYPRODUCTS ${object}.ptxas DEPFILE ${object}.d VERBATIM
            COMMAND sh ${PROJECT_SOURCE_DIR}/base/cmake/nvcc.sh ${object}.ptxas ${DDP_NVCC} ${options} -MD -MF ${object}.d
                -c ${source} -o ${object}
            DEPENDS ${source} ${PROJECT_SOURCE_DIR}/base/cmake/nvcc.sh COMMENT "Building CUDA object ${name}.o")
        set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
        target_sources(${target} PRIVATE ${object})
        list(APPEND logs ${object}.ptxas)
    endforeach()
    set_property(GLOBAL APPEND PROPERTY DDP_PTXAS_LOGS ${logs})
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:ddp_dep::cuda_headers>
        PUBLIC $<BUILD_INTERFACE:${DDP_CUDART}> $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/libcudart_static.a>
        Threads::Threads ${CMAKE_DL_LIBS} rt)
endfunction()

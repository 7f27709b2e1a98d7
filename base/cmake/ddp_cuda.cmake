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

//! Functions that GStreamer or cudarc look up and that this driver can't do. They must be there: GStreamer takes a
//! driver without them for broken.
//!
//! They are declared without their parameters: the caller passes them in registers and on its own stack, and nobody
//! reads them.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use crate::call::query;
use crate::error::CUresult;

macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> CUresult {
            query(stringify!($name), |_| Err(CUresult::CUDA_ERROR_NOT_SUPPORTED))
        }
    )*};
}

// Pictures of OpenGL and EGL. GStreamer asks for the first version of some where its newer headers were not there.
unsupported! {
    cuGLGetDevices cuGLGetDevices_v2 cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage
    cuGraphicsMapResources cuGraphicsResourceGetMappedEglFrame cuGraphicsResourceGetMappedPointer_v2
    cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources
    cuGraphicsUnregisterResource
}

// Textures.
unsupported! { cuTexObjectCreate cuTexObjectDestroy }

// Memory and events of other processes.
unsupported! {
    cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle cuIpcOpenMemHandle
    cuIpcOpenMemHandle_v2
}

// Memory and semaphores of Vulkan and Direct3D, and what else GStreamer 1.26 looks up.
unsupported! {
    cuCtxGetLimit cuCtxSetLimit cuDestroyExternalMemory cuDestroyExternalSemaphore cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuImportExternalMemory cuImportExternalSemaphore cuMemsetD2D16Async
    cuMemsetD2D16_v2 cuMemsetD2D32Async cuMemsetD2D32_v2 cuMemsetD2D8Async cuMemsetD2D8_v2
    cuSignalExternalSemaphoresAsync cuWaitExternalSemaphoresAsync
}

// Memory that is mapped by hand.
unsupported! {
    cuMemAddressFree cuMemAddressReserve cuMemCreate cuMemExportToShareableHandle cuMemGetAccess
    cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle cuMemImportFromShareableHandle cuMemMap
    cuMemRelease cuMemRetainAllocationHandle cuMemSetAccess cuMemUnmap
}

// Memory in the order of streams, which the device says it hasn't.
unsupported! {
    cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool cuMemAllocAsync cuMemAllocFromPoolAsync
    cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo
}

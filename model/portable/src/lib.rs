//! The Sapiens and Sapiens2 segmentation networks on burn.

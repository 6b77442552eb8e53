//! Operations on shapes and slices that vision transformers are made of. Never heard of Sapiens, GStreamer or burn.

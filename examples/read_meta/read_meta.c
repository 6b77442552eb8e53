/* Reads the labels that `sapiensseg` puts on frames, in C.
 *
 *   cc read_meta.c -o read_meta $(pkg-config --cflags --libs gstreamer-app-1.0 gstreamer-video-1.0)
 *   ./read_meta "filesrc location=clip.mp4 ! decodebin ! videoconvert ! sapiensseg"
 *
 * The argument is a pipeline in gst-launch's words, up to where frames have their labels; this program adds an
 * appsink and prints a line per frame: its time, and how many pixels each class has. The plugin is found as GStreamer
 * finds plugins, by GST_PLUGIN_PATH for one that isn't installed. There is no header of ours to include: the meta is
 * one of GStreamer's custom metas (since 1.20), which are read by name.
 */

#include <gst/app/gstappsink.h>
#include <gst/gst.h>
#include <gst/video/video.h>

/* What the plugin calls its meta. */
#define META "SapiensSegMeta"

static void print_time(guint64 nanoseconds) {
  if (GST_CLOCK_TIME_IS_VALID(nanoseconds))
    g_print("%.3f s", nanoseconds / 1e9);
  else
    g_print("no time");
}

/* Prints a frame's time and its classes with their pixels; FALSE if the meta isn't as it should be. */
static gboolean describe(GstBuffer *frame) {
  print_time(GST_BUFFER_PTS(frame));

  /* Frames of a live stream that leave before any labels are there have no meta. */
  GstCustomMeta *meta = gst_buffer_get_custom_meta(frame, META);
  if (meta == NULL) {
    g_print(": no labels\n");
    return TRUE;
  }
  GstStructure *fields = gst_custom_meta_get_structure(meta);
  const GValue *classes = gst_structure_get_value(fields, "classes");
  const GValue *mask_value = gst_structure_get_value(fields, "mask");
  guint width = 0, height = 0;
  gboolean reused = FALSE;
  guint64 labels_pts = GST_CLOCK_TIME_NONE;
  if (classes == NULL || mask_value == NULL ||
      !gst_structure_get(fields, "width", G_TYPE_UINT, &width, "height", G_TYPE_UINT, &height, "reused",
                         G_TYPE_BOOLEAN, &reused, "labels-pts", G_TYPE_UINT64, &labels_pts, NULL))
    return FALSE;

  /* The mask is an image like any other, GRAY8, with a GstVideoMeta that says where its rows are. Here they follow
   * each other without padding, so that it could as well be mapped as plain bytes. The structure keeps it. */
  GstBuffer *mask = gst_value_get_buffer(mask_value);
  GstVideoInfo info;
  GstVideoFrame image;
  gst_video_info_set_format(&info, GST_VIDEO_FORMAT_GRAY8, width, height);
  if (!gst_video_frame_map(&image, &info, mask, GST_MAP_READ))
    return FALSE;
  guint64 pixels[256] = {0};
  for (guint y = 0; y < height; y++) {
    const guint8 *row = (const guint8 *)GST_VIDEO_FRAME_PLANE_DATA(&image, 0) +
                        (gsize)y * GST_VIDEO_FRAME_PLANE_STRIDE(&image, 0);
    for (guint x = 0; x < width; x++)
      pixels[row[x]]++;
  }
  gst_video_frame_unmap(&image);

  const gchar *separator = ": ";
  for (guint i = 0; i < gst_value_array_get_size(classes) && i < G_N_ELEMENTS(pixels); i++) {
    if (pixels[i] == 0)
      continue;
    g_print("%s%s %" G_GUINT64_FORMAT, separator, g_value_get_string(gst_value_array_get_value(classes, i)),
            pixels[i]);
    separator = ", ";
  }
  /* Labels may be those of an earlier frame: of every Nth with interval=N, of the last that was ready in time in a
   * live stream. */
  if (reused) {
    g_print(" (labels of ");
    print_time(labels_pts);
    g_print(")");
  }
  g_print("\n");
  return TRUE;
}

int main(int argc, char **argv) {
  gst_init(&argc, &argv);
  if (argc != 2) {
    g_printerr("usage: %s 'SOURCE ! ... ! sapiensseg ...'\n", argv[0]);
    return 2;
  }
  /* sync=false: frames are read as fast as they are labelled, not at the pace of the clip. */
  gchar *description = g_strconcat(argv[1], " ! appsink name=labelled sync=false", NULL);
  GError *error = NULL;
  GstElement *pipeline = gst_parse_launch(description, &error);
  g_free(description);
  if (error != NULL) {
    g_printerr("%s: %s\n", argv[0], error->message);
    g_clear_error(&error);
    gst_clear_object(&pipeline);
    return 1;
  }
  GstElement *frames = gst_bin_get_by_name(GST_BIN(pipeline), "labelled");
  int status = 0;

  /* A model that isn't there, say, fails at once. */
  gboolean started = gst_element_set_state(pipeline, GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE;
  /* An error is the end of the samples, too. */
  GstSample *sample;
  while (started && (sample = gst_app_sink_pull_sample(GST_APP_SINK(frames))) != NULL) {
    if (!describe(gst_sample_get_buffer(sample))) {
      g_printerr("%s: the meta lacks fields\n", argv[0]);
      status = 1;
    }
    gst_sample_unref(sample);
  }

  /* What went wrong, if anything, the bus says. */
  GstBus *bus = gst_element_get_bus(pipeline);
  GstMessage *message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR);
  if (message != NULL) {
    gst_message_parse_error(message, &error, NULL);
    g_printerr("%s: %s\n", argv[0], error->message);
    g_clear_error(&error);
    gst_message_unref(message);
    status = 1;
  } else if (!started) {
    status = 1;
  }
  gst_object_unref(bus);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(frames);
  gst_object_unref(pipeline);
  return status;
}

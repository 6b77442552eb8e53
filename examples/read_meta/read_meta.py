#!/usr/bin/python3
"""Reads the labels that `sapiensseg` puts on frames, in Python.

    ./read_meta.py "filesrc location=clip.mp4 ! decodebin ! videoconvert ! sapiensseg"

The argument is a pipeline in gst-launch's words, up to where frames have their labels; this program adds an appsink
and prints a line per frame: its time, and how many pixels each class has. The plugin is found as GStreamer finds
plugins, by GST_PLUGIN_PATH for one that isn't installed. It needs PyGObject and GStreamer's introspection data
(Debian: python3-gi, gir1.2-gstreamer-1.0), and nothing of ours: the meta is one of GStreamer's custom metas, which
are read by name.
"""

import collections
import sys
import warnings

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst  # noqa: E402

# What the plugin calls its meta.
META = "SapiensSegMeta"


# GObject calls its arrays deprecated, but in Python there is no other way to the values of one.
warnings.filterwarnings("ignore", message="GObject.ValueArray.get_nth")


def seconds(nanoseconds):
    return "no time" if nanoseconds == Gst.CLOCK_TIME_NONE else f"{nanoseconds / 1e9:.3f} s"


def describe(frame):
    """A frame's time and its classes with their pixels."""
    # Frames of a live stream that leave before any labels are there have no meta.
    meta = frame.get_custom_meta(META)
    if meta is None:
        return f"{seconds(frame.pts)}: no labels"
    fields = meta.get_structure()
    # Not get_value, as for the other fields: without gst-python's overrides PyGObject doesn't know GStreamer's arrays.
    found, classes = fields.get_array("classes")
    if not found:
        raise ValueError("the meta has no classes")
    names = [classes.get_nth(index) for index in range(classes.n_values)]
    mask = fields.get_value("mask")

    # A byte per pixel, row after row, width times height of them: no padding to mind. With NumPy:
    # np.frombuffer(labels.data, np.uint8).reshape(fields.get_value("height"), fields.get_value("width")).copy()
    mapped, labels = mask.map(Gst.MapFlags.READ)
    if not mapped:
        raise ValueError("the mask can't be mapped")
    try:
        pixels = collections.Counter(bytes(labels.data))
    finally:
        mask.unmap(labels)
    present = ", ".join(f"{name} {pixels[number]}" for number, name in enumerate(names) if pixels[number])

    # Labels may be those of an earlier frame: of every Nth with interval=N, of the last that was ready in time in a
    # live stream.
    of = f" (labels of {seconds(fields.get_value('labels-pts'))})" if fields.get_value("reused") else ""
    return f"{seconds(frame.pts)}: {present}{of}"


def main(arguments):
    if len(arguments) != 2:
        print(f"usage: {arguments[0]} 'SOURCE ! ... ! sapiensseg ...'", file=sys.stderr)
        return 2
    Gst.init(None)
    # sync=false: frames are read as fast as they are labelled, not at the pace of the clip.
    pipeline = Gst.parse_launch(f"{arguments[1]} ! appsink name=labelled sync=false")
    frames = pipeline.get_by_name("labelled")

    try:
        # A model that isn't there, say, fails at once.
        started = pipeline.set_state(Gst.State.PLAYING) != Gst.StateChangeReturn.FAILURE
        # An error is the end of the samples, too.
        while started and (sample := frames.emit("pull-sample")) is not None:
            print(describe(sample.get_buffer()), flush=True)
        # What went wrong, if anything, the bus says.
        message = pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
    finally:
        pipeline.set_state(Gst.State.NULL)
    if message is not None:
        error, _ = message.parse_error()
        print(f"{arguments[0]}: {error.message}", file=sys.stderr)
    return 0 if started and message is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))

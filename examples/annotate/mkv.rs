//! A Matroska file of one video track, written so that the same frames always give the same bytes.
//!
//! GStreamer's muxers put random numbers of varying length (the IDs of segment and track) and the time of day into
//! every file, and nothing but the time can be set. What a file of one track needs is little: a head, clusters of
//! frames, an index. Knows bytes, nothing of GStreamer.

use std::io::{self, Seek, SeekFrom, Write};

/// What the track holds.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    /// `matroska` or `webm`.
    pub doc_type: &'static str,
    /// Matroska's name of the codec.
    pub codec: &'static str,
    /// What the decoder must know beforehand.
    pub private: Vec<u8>,
    pub width: u32,
    pub height: u32,
    /// How wide and high it is shown, if that's not as many pixels as it has.
    pub shown: Option<(u32, u32)>,
}

/// A file being written. Times are in milliseconds, which is what WebM wants.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Where the segment's content begins: positions are counted from here.
    segment: u64,
    /// Where the duration and the index's position are to be written in the end.
    duration_at: u64,
    cues_at: u64,
    cluster: Option<Cluster>,
    /// Time and cluster's position of each key frame that begins a cluster.
    cues: Vec<(u64, u64)>,
    last: u64,
    end: u64,
}

#[derive(Debug)]
struct Cluster {
    time: u64,
    position: u64,
    blocks: Vec<u8>,
}

/// A cluster's frames are this far apart at most: their times are 16-bit numbers relative to its own.
const MAX_CLUSTER: u64 = 5_000;
/// A cluster has this many bytes, roughly: it is written whole.
const MAX_CLUSTER_BYTES: usize = 4 << 20;
/// A key frame begins a cluster if the last one is this old: players jump to where clusters begin.
const KEY_CLUSTER: u64 = 500;
/// Written before it is known and overwritten later: numbers of a fixed length.
const UNKNOWN: u64 = 0;

const EBML: u32 = 0x1A45_DFA3;
const SEGMENT: u32 = 0x1853_8067;
const SEEK_HEAD: u32 = 0x114D_9B74;
const INFO: u32 = 0x1549_A966;
const TRACKS: u32 = 0x1654_AE6B;
const CLUSTER: u32 = 0x1F43_B675;
const CUES: u32 = 0x1C53_BB6B;

impl Writer {
    /// Writes the head.
    pub(crate) fn new(to: &mut (impl Write + Seek), track: &Track) -> io::Result<Self> {
        let mut head = Vec::new();
        put(&mut head, 0x4286, &number(1));
        put(&mut head, 0x42F7, &number(1));
        put(&mut head, 0x42F2, &number(4));
        put(&mut head, 0x42F3, &number(8));
        put(&mut head, 0x4282, track.doc_type.as_bytes());
        put(&mut head, 0x4287, &number(2));
        put(&mut head, 0x4285, &number(2));
        let mut file = Vec::new();
        put(&mut file, EBML, &head);
        id(&mut file, SEGMENT);
        fixed_size(&mut file, UNKNOWN);
        let segment = file.len() as u64;

        let mut seek = Vec::new();
        put(&mut seek, 0x53AB, &CUES.to_be_bytes());
        put(&mut seek, 0x53AC, &UNKNOWN.to_be_bytes());
        let mut seeks = Vec::new();
        put(&mut seeks, 0x4DBB, &seek);
        put(&mut file, SEEK_HEAD, &seeks);
        // The position is the last thing in there.
        let cues_at = file.len() as u64 - 8;

        let mut info = Vec::new();
        put(&mut info, 0x2A_D7B1, &number(1_000_000));
        put(&mut info, 0x4D80, b"sapiensseg");
        put(&mut info, 0x5741, b"sapiensseg annotate");
        put(&mut info, 0x4489, &0f64.to_be_bytes());
        put(&mut file, INFO, &info);
        let duration_at = file.len() as u64 - 8;

        let mut video = Vec::new();
        put(&mut video, 0xB0, &number(track.width.into()));
        put(&mut video, 0xBA, &number(track.height.into()));
        if let Some((width, height)) = track.shown {
            put(&mut video, 0x54B0, &number(width.into()));
            put(&mut video, 0x54BA, &number(height.into()));
        }
        let mut entry = Vec::new();
        put(&mut entry, 0xD7, &number(1));
        put(&mut entry, 0x73C5, &number(1));
        put(&mut entry, 0x83, &number(1));
        put(&mut entry, 0x9C, &number(0));
        put(&mut entry, 0x86, track.codec.as_bytes());
        if !track.private.is_empty() {
            put(&mut entry, 0x63A2, &track.private);
        }
        put(&mut entry, 0xE0, &video);
        let mut tracks = Vec::new();
        put(&mut tracks, 0xAE, &entry);
        put(&mut file, TRACKS, &tracks);
        to.write_all(&file)?;
        Ok(Self { segment, duration_at, cues_at, cluster: None, cues: Vec::new(), last: 0, end: 0 })
    }

    /// Adds a frame that is shown from `time` on, for `duration`.
    pub(crate) fn frame(
        &mut self,
        to: &mut (impl Write + Seek),
        time: u64,
        duration: u64,
        is_key: bool,
        data: &[u8],
    ) -> io::Result<()> {
        // Players take frames of one time, or of an earlier one, for broken.
        let time = time.max(self.last);
        self.last = time + 1;
        self.end = time + duration.max(1);
        let full = self.cluster.as_ref().is_none_or(|cluster| {
            let age = time - cluster.time;
            age > MAX_CLUSTER || is_key && age > KEY_CLUSTER || cluster.blocks.len() > MAX_CLUSTER_BYTES
        });
        if full {
            self.write_cluster(to)?;
            let position = to.stream_position()? - self.segment;
            if is_key {
                self.cues.push((time, position));
            }
            self.cluster = Some(Cluster { time, position, blocks: Vec::new() });
        }
        let Some(cluster) = &mut self.cluster else { return Ok(()) };
        let mut block = vec![0x81];
        block.extend((((time - cluster.time) as i64) as i16).to_be_bytes());
        block.push(if is_key { 0x80 } else { 0 });
        block.extend(data);
        put(&mut cluster.blocks, 0xA3, &block);
        Ok(())
    }

    fn write_cluster(&mut self, to: &mut (impl Write + Seek)) -> io::Result<()> {
        let Some(cluster) = self.cluster.take() else { return Ok(()) };
        let mut content = Vec::new();
        put(&mut content, 0xE7, &number(cluster.time));
        put(&mut content, 0xA7, &number(cluster.position));
        content.extend(cluster.blocks);
        let mut file = Vec::new();
        put(&mut file, CLUSTER, &content);
        to.write_all(&file)
    }

    /// Writes the last frames, the index, and what the head must say of it.
    pub(crate) fn finish(mut self, to: &mut (impl Write + Seek)) -> io::Result<()> {
        self.write_cluster(to)?;
        let cues_position = to.stream_position()? - self.segment;
        let mut cues = Vec::new();
        for (time, position) in &self.cues {
            let mut track = Vec::new();
            put(&mut track, 0xF7, &number(1));
            put(&mut track, 0xF1, &number(*position));
            let mut point = Vec::new();
            put(&mut point, 0xB3, &number(*time));
            put(&mut point, 0xB7, &track);
            put(&mut cues, 0xBB, &point);
        }
        let mut file = Vec::new();
        put(&mut file, CUES, &cues);
        to.write_all(&file)?;
        let size = to.stream_position()? - self.segment;
        let mut patch = |at: u64, bytes: &[u8]| {
            to.seek(SeekFrom::Start(at))?;
            to.write_all(bytes)
        };
        let mut fixed = Vec::new();
        fixed_size(&mut fixed, size);
        patch(self.segment - 8, &fixed)?;
        patch(self.cues_at, &cues_position.to_be_bytes())?;
        patch(self.duration_at, &(self.end as f64).to_be_bytes())
    }
}

/// An element: its ID, the length of its content, its content.
fn put(to: &mut Vec<u8>, element: u32, content: &[u8]) {
    id(to, element);
    size(to, content.len() as u64);
    to.extend(content);
}

/// IDs carry their own length.
fn id(to: &mut Vec<u8>, element: u32) {
    to.extend(element.to_be_bytes().into_iter().skip_while(|byte| *byte == 0));
}

/// A length in as few bytes as hold it; all ones would mean that it isn't known.
fn size(to: &mut Vec<u8>, length: u64) {
    let bytes = (1..8).find(|bytes| length < (1 << (7 * bytes)) - 1).unwrap_or(8);
    let marked = length | 1 << (7 * bytes);
    to.extend(&marked.to_be_bytes()[8 - bytes..]);
}

fn fixed_size(to: &mut Vec<u8>, length: u64) {
    to.extend((length | 1 << 56).to_be_bytes());
}

/// A whole number in as few bytes as hold it, one at least.
fn number(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take(7).take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_numbers_are_as_short_as_can_be() {
        let size = |length| {
            let mut bytes = Vec::new();
            size(&mut bytes, length);
            bytes
        };
        assert_eq!(size(0), [0x80]);
        assert_eq!(size(126), [0xFE]);
        // 127 in one byte would be all ones.
        assert_eq!(size(127), [0x40, 0x7F]);
        assert_eq!(size(1 << 14), [0x20, 0x40, 0x00]);
        assert_eq!(size(1 << 50), [0x01, 0x04, 0, 0, 0, 0, 0, 0]);
        assert_eq!((number(0), number(255), number(256)), (vec![0], vec![255], vec![1, 0]));
    }
}

//! A hub and its storage on two ports of this machine, as slow, rude or broken as a test wants them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use sha2::{Digest, Sha256};

/// A request as it came; header names in lower case.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The byte that is asked for first.
    fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What is answered. Less than `body` is sent if `cut` says so; then the connection is closed.
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    cut: Option<usize>,
    /// Held after the bytes before the cut, and opened by the test for the rest.
    gate: Option<Arc<Gate>>,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), cut: None, gate: None }
    }

    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

/// Closed at first. A server waits at it; a test waits until a server does.
#[derive(Default)]
pub struct Gate {
    /// Whether the server is there, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    pub fn wait_for_server(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.0).unwrap());
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// One port. Its thread ends with the test's process.
pub struct Server {
    pub port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, handler) = (requests.clone(), Arc::new(handler) as Arc<Handler>);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, handler) = (log.clone(), handler.clone());
                // A client that has gone away is no failure.
                std::thread::spawn(move || serve(stream, &log, &*handler).ok());
            }
        });
        Self { port, requests }
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn gets(&self) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.method == "GET").collect()
    }

    /// The ranges of the GETs, in order.
    pub fn ranges(&self) -> Vec<Option<String>> {
        self.gets().iter().map(|request| request.header("range").map(str::to_owned)).collect()
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Request>>, handler: &Handler) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let request = read(&mut reader)?;
        log.lock().unwrap().push(request.clone());
        if request.method == "CONNECT" {
            // As a proxy, this server is where every tunnel leads.
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            continue;
        }
        let reply = handler(&request);
        let mut head = format!("HTTP/1.1 {} Text\r\nConnection: close\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !reply.headers.iter().any(|(name, _)| *name == "Content-Length") {
            head.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        if request.method != "HEAD" {
            let cut = reply.cut.map_or(reply.body.len(), |cut| cut.min(reply.body.len()));
            stream.write_all(&reply.body[..cut])?;
            if let Some(gate) = &reply.gate {
                gate.pass();
                stream.write_all(&reply.body[cut..])?;
            }
        }
        return stream.shutdown(Shutdown::Both);
    }
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Request> {
    let mut line = String::new();
    // Nobody sends more than this.
    reader.take(1 << 16).read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    };
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(Request { method, target, headers })
}

/// What the storage does with one request; without a step it does what it should.
pub enum Step {
    /// Closes the connection after so many bytes.
    Cut(usize),
    /// Waits after so many bytes until the gate is opened.
    Hold(usize, Arc<Gate>),
    /// Sends everything, whatever was asked for.
    IgnoreRange,
    /// Sends other bytes than were asked for, and says so.
    WrongRange,
    Status(u16),
}

/// A hub with one large file, which it keeps in a storage with another address.
pub struct Hub {
    pub hub: Server,
    pub storage: Server,
}

impl Hub {
    pub fn new(content: &[u8], steps: impl IntoIterator<Item = Step>) -> Self {
        Self::claiming(content, Some(&sha256(content)), content.len() as u64, steps)
    }

    /// A hub that says what isn't so.
    pub fn claiming(
        content: &[u8],
        sha256: Option<&str>,
        size: u64,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let steps = Mutex::new(steps.into_iter().collect::<VecDeque<_>>());
        let content = content.to_owned();
        let storage = Server::start(move |request| {
            // HEAD is for those whom the hub told nothing.
            let step = if request.method == "GET" { steps.lock().unwrap().pop_front() } else { None };
            store(&content, request, step)
        });
        let location = format!("{}/stored?signature=secret", storage.address());
        let etag = sha256.map(|digits| format!("\"{digits}\""));
        let hub = Server::start(move |_| {
            let reply = Reply::status(302).header("Location", &location).header("ETag", "\"0123\"");
            match &etag {
                Some(etag) => reply.header("X-Linked-Etag", etag).header("X-Linked-Size", size),
                None => reply,
            }
        });
        Self { hub, storage }
    }
}

fn store(content: &[u8], request: &Request, step: Option<Step>) -> Reply {
    let size = content.len();
    let whole = || Reply { body: content.to_owned(), ..Reply::status(200) };
    let mut reply = match request.from() {
        Some(from) if from >= size => {
            return Reply::status(416).header("Content-Range", format!("bytes */{size}"));
        }
        Some(from) => Reply { body: content[from..].to_owned(), ..Reply::status(206) }
            .header("Content-Range", format!("bytes {from}-{}/{size}", size - 1)),
        None => whole(),
    };
    match step {
        None => {}
        Some(Step::Cut(bytes)) => reply.cut = Some(bytes),
        Some(Step::Hold(bytes, gate)) => (reply.cut, reply.gate) = (Some(bytes), Some(gate)),
        Some(Step::IgnoreRange) => reply = whole(),
        Some(Step::WrongRange) => {
            reply = Reply { body: content[1..].to_owned(), ..Reply::status(206) }
                .header("Content-Range", format!("bytes 1-{}/{size}", size - 1));
        }
        Some(Step::Status(status)) => reply = Reply::status(status),
    }
    reply
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

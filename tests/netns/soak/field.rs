//! What all that are at work share: the ground, the news, and whether it is over.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use super::ground::Ground;
use super::ride::Ride;
use super::rider::{Outcome, Rider};
use super::said::Said;

/// What the one that watches is told.
#[derive(Debug)]
pub enum News {
    /// An end of a connection says something.
    Said(Said),
    /// A pillion is at work: its process.
    Attached(u32),
    /// A pillion has ended, and nothing of it is left; or something is broken.
    Ended(Result<Outcome, String>),
}

#[derive(Clone)]
pub struct Field {
    pub ground: Arc<Ground>,
    news: Sender<News>,
    over: Arc<AtomicBool>,
}

impl Field {
    pub fn new(ground: Ground, news: Sender<News>) -> Self {
        Self {
            ground: Arc::new(ground),
            news,
            over: Arc::default(),
        }
    }

    pub fn tell(&self, news: News) {
        // After a failure nobody listens.
        let _ = self.news.send(news);
    }

    /// Pillions end now, whatever time they had.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Passes on what a process at an end says, until it has ended; all lines to `also`.
    pub fn listen(&self, from: impl Read + Send + 'static, also: Sender<String>) -> JoinHandle<()> {
        let field = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let Ok(said) = line.parse() {
                    field.tell(News::Said(said));
                }
                let _ = also.send(line);
            }
        })
    }

    pub fn ride(&self, ride: Ride, number: u64) -> JoinHandle<()> {
        let field = self.clone();
        thread::spawn(move || {
            let ended = Rider::go(&field, &ride, number);
            field.tell(News::Ended(ended));
        })
    }
}

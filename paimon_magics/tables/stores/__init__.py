"""The stores of tables' files (local disks, S3, HDFS), and what each can do in one step."""
